"""NCCL's dialect: what is read, what is refused and where, and that what is written is read back."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from topo_nodes import CAPTURE

from agent.errors import ConfigError
from agent.topo.dialect import LONGEST_TEXT, MOST_CHILDREN, MOST_NODES, read_document
from agent.topo.model import Cpu, Gpu, Net, Nic, NvLink, Pci, Stamp, System, placed
from agent.topo.read_file import parse
from agent.topo.write_file import mask_text, render

DUMPS = sorted((Path(__file__).parent / "dumps").glob("*.xml"))
GOOD = """<system version="1">
  <cpu numaid="0" affinity="ffffffff">
    <pci busid="0000:16:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
      <pci busid="0000:1b:00.0" class="0x030200">
        <gpu>
          <nvlink target="fffffff:ff:ff.0" count="18" tclass="0x068000"/>
        </gpu>
      </pci>
    </pci>
  </cpu>
</system>
"""


@pytest.mark.parametrize(
    ("change", "where", "words"),
    [
        (("\n  <cpu", "\n\t<cpu"), "2:1", "TAB"),
        (("<cpu numaid", "<cpu\tnumaid"), "2:7", "inside <cpu>"),
        (("<cpu numaid", "<cpu  numaid"), "2:8", "a space too many"),
        (('"ffffffff">', '"ffffffff" >'), "2:39", "a space too many"),
        (('"0x030200">', '"0x030200"\n>'), "4:49", "inside <pci>"),
        (("<system", '<?xml version="1.0"?>\n<system'), "1:1", "prolog"),
        (("<system", "<!DOCTYPE system>\n<system"), "1:2", "name of the element"),
        (('version="1"', 'version="2"'), "1:1", "version 2"),
        ((' version="1"', ""), "1:1", "no version"),
        (("<gpu>", "<gpu>text"), "5:14", "'t' stands here"),
        (("<gpu>", "<gpu><disk/>"), "5:14", "no <disk> inside <gpu>"),
        (("</gpu>", "</pci>"), "7:9", "</pci> closes <gpu> of line 5"),
        (("</gpu>", "</gpu >"), "7:14", "between the name and '>'"),
        (("</system>\n", ""), "11:1", "the file ends inside <system>"),
        (("</system>\n", "</system>\n<system/>"), "12:1", "something follows"),
        (('class="0x030200"', 'class="0x030200" class="0x0"'), "4:50", "class stands twice"),
        (('class="0x030200"', 'class="0x030200" color="red"'), "4:50", "no attribute color"),
        (('class="0x030200"', "class='0x030200'"), "4:38", "not followed by a value"),
        (('class="0x030200"', "class"), "4:38", "not followed by a value"),
        (('class="0x030200"', 'class="0x03\n0200"'), "4:33", "'\\n'"),
        (('class="0x030200"', 'class="é"'), "4:33", "'é'"),
        (('class="0x030200"', f'class="{"x" * (LONGEST_TEXT + 1)}"'), "4:33", "254 characters"),
        (('class="0x030200"', f'class="{"x" * 300}"'), "4:33", "300 characters"),
        (("0000:1b:00.0", "0000:1B:00.0"), "4:7", "busid '0000:1B:00.0'"),
        (("0000:1b:00.0", "0000:16:00.0"), "4:7", "stands in line 3 already"),
        ((' busid="0000:1b:00.0"', ""), "4:7", "no busid"),
        (('numaid="0" ', ""), "2:3", "no numaid"),
        (('count="18"', 'count="many"'), "6:11", "count 'many'"),
        (('"ffffffff"', '"0-31"'), "2:3", "no mask of CPUs"),
        (("<gpu>", "<gpu><!-- no end"), "5:14", "no end"),
        (("<gpu>", "<gpu><!--a=b-->"), "5:14", "first word of this comment"),
    ],
)
def test_what_nccl_cannot_read_is_refused_where_it_stands(
    change: tuple[str, str], where: str, words: str
) -> None:
    text = GOOD.replace(*change, 1)
    assert text != GOOD
    with pytest.raises(ConfigError) as refused:
        parse(text, "t.xml")
    assert refused.value.where == f"t.xml:{where}", refused.value
    assert words in refused.value.problem
    assert refused.value.remedy


def test_a_seventeenth_attribute_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    many = frozenset(f"a{number}" for number in range(17))
    monkeypatch.setattr("agent.topo.dialect.ATTRIBUTES", {"system": many})
    sixteen = " ".join(f'a{number}="1"' for number in range(16))
    assert len(read_document(f"<system {sixteen}/>", "t").root.attributes) == 16
    with pytest.raises(ConfigError, match=r"^t:1:\d+: more than 16 attributes"):
        read_document(f'<system {sixteen} a16="1"/>', "t")


@pytest.mark.parametrize("children", [MOST_CHILDREN + 1, 641])
def test_too_many_children_are_refused_before_nccl_does(children: int) -> None:
    text = GOOD.replace("</cpu>", "<nic/>\n" * (children - 1) + "</cpu>")
    with pytest.raises(ConfigError, match=f"<cpu> has more than {MOST_CHILDREN} elements") as refused:
        parse(text, "t.xml")
    assert refused.value.where is not None
    parse(GOOD.replace("</cpu>", "<nic/>\n" * (MOST_CHILDREN - 1) + "</cpu>"), "t.xml")


def _padded(elements: int) -> str:
    """GOOD, which has 6 elements, with more NUMA nodes and NICs up to a number of elements."""
    nics = elements - 6 - 2
    cpus = f'<cpu numaid="1">{"<nic/>" * 120}</cpu>\n<cpu numaid="2">{"<nic/>" * (nics - 120)}</cpu>\n'
    return GOOD.replace("</system>", f"{cpus}</system>")


def test_nccls_table_of_elements_is_the_limit() -> None:
    assert len(parse(_padded(MOST_NODES), "t.xml").cpus) == 3
    with pytest.raises(ConfigError, match=r"^t.xml:12:\d+: the file has more than 255 elements"):
        parse(_padded(MOST_NODES + 1), "t.xml")


def test_a_value_as_long_as_nccl_takes() -> None:
    assert (
        parse(GOOD.replace('version="1"', f'version="1" name="{"x" * LONGEST_TEXT}"'), "t").name == "x" * 253
    )


def test_comments_are_skipped_wherever_they_stand() -> None:
    text = "<!-- a > b -->\n" + GOOD.replace("<gpu>", "<gpu> <!-- c=d -->").replace("</cpu>", "</cpu><!---->")
    assert parse(text, "t.xml") == parse(GOOD, "t.xml")


@pytest.mark.parametrize("text", ["", "  \n", "<!-- nothing -->"])
def test_a_file_without_an_element(text: str) -> None:
    with pytest.raises(ConfigError, match="no element"):
        parse(text, "t.xml")


def test_nesting_without_end_is_refused() -> None:
    pcis = "".join(f'<pci busid="0000:{number:02x}:00.0">' for number in range(200))
    with pytest.raises(ConfigError, match="deep"):
        parse(f'<system version="1"><cpu numaid="0">{pcis}', "t.xml")


@pytest.mark.parametrize("dump", DUMPS, ids=lambda path: path.stem)
def test_what_nccl_itself_wrote_is_read(dump: Path) -> None:
    text = dump.read_text(encoding="ascii")
    system = parse(text, dump.name)
    gpus = [each for each in placed(system) if each.pci.is_gpu]
    assert len(gpus) == (2 if "x2" in dump.stem else 1)
    assert dict(gpus[0].pci.gpus[0].more)["sm"] == "90"
    assert system.cpus[0].nics[0].nets[0].name == "eth0"
    assert parse(render(system), "again") == system


def test_what_nccl_made_of_two_spaces_is_not_read_back() -> None:
    text = (CAPTURE / "dump-two-spaces.xml").read_text(encoding="ascii")
    with pytest.raises(ConfigError, match=r"name of the attribute"):
        parse(text, "dump")


@pytest.mark.parametrize("value", ['a"b', "a\nb", "é", "x" * 254])
def test_a_value_that_nccl_could_not_read_is_not_written(value: str) -> None:
    with pytest.raises(ConfigError):
        render(System(name=value))


def test_masks_are_written_as_the_kernel_does() -> None:
    assert mask_text(0) == "00000000"
    assert mask_text(1 << 32 | 5) == "00000001,00000005"


_TEXT = st.text(st.characters(min_codepoint=32, max_codepoint=126, exclude_characters='"'), max_size=20)
_BUS = st.integers(0, 0xFFFFFF).map(
    lambda number: f"{number >> 12:04x}:{number >> 4 & 0xFF:02x}:{number & 0xF:02x}.0"
)
_LINK = st.builds(NvLink, st.just("fffffff:ff:ff.0"), st.integers(0, 18), st.none() | _TEXT)
_GPU = st.builds(Gpu, st.lists(_LINK, max_size=2).map(tuple), st.just(()) | st.just((("dev", "0"),)))
_NIC = st.builds(Nic, st.lists(st.builds(Net, _TEXT), max_size=2).map(tuple))


@st.composite
def _systems(draw: st.DrawFn) -> System:
    buses = iter(draw(st.lists(_BUS, min_size=8, max_size=8, unique=True)))

    def pci(depth: int) -> Pci:
        below = tuple(pci(depth - 1) for _ in range(draw(st.integers(0, 1)))) if depth else ()
        return Pci(
            next(buses),
            draw(st.none() | _TEXT),
            draw(st.none() | _TEXT),
            draw(st.none() | st.integers(0, 32)),
            draw(st.just(()) | st.just((("vendor", "0x10de"), ("device", "0x2335")))),
            below,
            draw(st.lists(_GPU, max_size=1).map(tuple)),
            draw(st.lists(_NIC, max_size=1).map(tuple)),
        )

    cpus = tuple(
        Cpu(number, draw(st.none() | st.integers(0, 2**192)), pcis=(pci(2),), nics=(draw(_NIC),))
        for number in range(-1, draw(st.integers(0, 1)))
    )
    stamps = (Stamp("gpu0", "0000:1b:00.0", "GPU-" + "a" * 36), Stamp("mlx5_0", "0000:18:00.0"))
    return System(cpus, draw(st.just(()) | st.just(stamps)), draw(st.none() | _TEXT), draw(st.booleans()))


@settings(max_examples=15, deadline=None)
@given(_systems())
def test_what_is_written_is_read_back(system: System) -> None:
    assert parse(render(system), "t.xml") == system
