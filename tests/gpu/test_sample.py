"""Names of GPUs in a sample."""

from gpusupervisor.gpu.sample import GpuIdentity, GpuSample, told_apart


def gpu(uuid: str) -> GpuSample:
    return GpuSample(GpuIdentity(uuid, "NVIDIA L4", ""), "ok", 0)


def test_each_of_several_gpus_is_named_with_the_beginning_of_its_uuid() -> None:
    names = [each.identity.name for each in told_apart([gpu("GPU-11111111-2222-3333"), gpu("GPU-44444444-5555-6666")])]
    assert names == ["NVIDIA L4 (GPU-11111111)", "NVIDIA L4 (GPU-44444444)"]


def test_the_only_gpu_is_named_as_the_driver_names_it() -> None:
    assert [each.identity.name for each in told_apart([gpu("GPU-11111111-2222-3333")])] == ["NVIDIA L4"]
