"""A simulated desktop: it holds VRAM as graphics and listens nowhere."""

from gpusupervisor.simulation.engines.process import announce, for_ever, options, run, size
from gpusupervisor.simulation.engines.vram import Vram


def main() -> None:
    """The command line."""
    parser = options("A simulated desktop")
    parser.add_argument("--hold", type=size, default=size("700M"))
    parser.add_argument("--sm", type=int, default=3, help="percent of the SMs that it uses")
    arguments = parser.parse_args()

    async def hold() -> None:
        vram = Vram(arguments.card, arguments.gpu, kinds=("graphics",))
        vram.hold_what_fits(arguments.hold, sm=arguments.sm)
        announce("holding")
        try:
            await for_ever()
        finally:
            vram.hold(0)

    run(hold)


if __name__ == "__main__":
    main()
