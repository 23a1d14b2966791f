import re

import pynvml
import pytest

from gpusupervisor.gpu.errors import IMPLAUSIBLE, MIG_HIDES, DriverError, ErrorClass, code_of, plain
from gpusupervisor.gpu.symbols import SYMBOLS, Symbol


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (pynvml.NVML_ERROR_UNINITIALIZED, "lifecycle"),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "lifecycle"),
        (pynvml.NVML_ERROR_GPU_IS_LOST, "lifecycle"),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "lifecycle"),
        (pynvml.NVML_ERROR_GPU_NOT_FOUND, "lifecycle"),
        (pynvml.NVML_ERROR_RESET_REQUIRED, "lifecycle"),
        (pynvml.NVML_ERROR_INVALID_STATE, "lifecycle"),
        (pynvml.NVML_ERROR_IN_USE, "lifecycle"),
        (pynvml.NVML_ERROR_NOT_SUPPORTED, "unsupported"),
        (pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, "unsupported"),
        (pynvml.NVML_ERROR_DEPRECATED, "unsupported"),
        (pynvml.NVML_ERROR_NO_DATA, "unsupported"),
        (pynvml.NVML_ERROR_NO_PERMISSION, "permission"),
        (pynvml.NVML_ERROR_OPERATING_SYSTEM, "permission"),
        (pynvml.NVML_ERROR_TIMEOUT, "transient"),
        (pynvml.NVML_ERROR_UNKNOWN, "transient"),
        (pynvml.NVML_ERROR_NOT_READY, "transient"),
        (pynvml.NVML_ERROR_MEMORY, "transient"),
        (4711, "transient"),
    ],
)
def test_every_code_has_a_class(code: int, expected: ErrorClass) -> None:
    assert DriverError("nvmlInit", code_of(pynvml.NVMLError(code))).error_class == expected


def test_a_missing_symbol_that_pynvml_reports_as_no_nvml_error_is_unsupported() -> None:
    mismatch = pynvml.NVMLLibraryMismatchError("Unversioned function called")
    assert not isinstance(mismatch, pynvml.NVMLError)
    assert code_of(mismatch) == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
    assert DriverError("nvmlInit", code_of(mismatch)).error_class == "unsupported"


def test_an_unhashable_error_becomes_one_that_can_be_kept_and_compared() -> None:
    with pytest.raises(TypeError):
        hash(pynvml.NVMLError(3))
    error = DriverError("nvmlDeviceGetMemoryInfo", code_of(pynvml.NVMLError(15)))
    assert len({error, DriverError("nvmlInit", 9)}) == 2
    assert str(error) == "reading the memory: GPU is lost"
    assert error.gpu_is_gone
    assert not error.ends_session


def test_a_code_that_nobody_knows_is_shown_as_its_number_without_asking_the_driver() -> None:
    assert str(DriverError("nvmlInit", 4711)) == "initialising NVML: error 4711"


@pytest.mark.parametrize("symbol", SYMBOLS, ids=lambda symbol: symbol.name)
def test_no_error_shows_a_name_of_c_whatever_failed(symbol: Symbol) -> None:
    for code in (2, 3, 4, 6, 13, 15, 17, 18, 999, 4711, IMPLAUSIBLE, MIG_HIDES):
        text = str(DriverError(symbol.name, code))
        assert "nvml" not in text
        assert not re.search(r"[a-z][A-Z]|_v\d", text.replace("infoROM", "")), text


def test_a_function_that_the_library_lacks_says_which_driver_has_it() -> None:
    assert str(DriverError("nvmlDeviceGetClockOffsets", 13)).endswith("driver 555.42 or later is needed")


def test_text_of_the_driver_is_bounded_and_printable() -> None:
    assert plain("NVIDIA\x1b[31m GPU\n\x00") == "NVIDIA[31m GPU"
    assert len(plain("x" * 10_000)) == 96
