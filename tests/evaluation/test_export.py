"""`revelator model export`: merged models, and GGUF by a converter and a server that stand in for llama.cpp's.

The last test takes llama.cpp's own programs, where the environment names them.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result
from transformers import AutoModelForCausalLM, AutoTokenizer

from evaluation.publish.export import export
from evaluation.publish.plan_check import SERVER_VARIABLE, find_server, serve_gguf
from revelator.artifact import GGUF, MERGED, digest_base, find_base, write_manifest
from revelator.errors import ArtifactError, ConfigError, ServingError
from revelator.rows import read_split
from revelator.tasks import TRANSLATE_BNF
from tests.serving.toy_model import write_adapter as write_small_adapter
from tests.training.toy import write_adapter, write_base, write_set
from training.gguf import CONVERTER, CONVERTER_VARIABLE, LORA_CONVERTER, LORA_FILE

RECORD, SERVED = "asked.json", "served.json"
# Stand in for llama.cpp: the converter records its arguments and what it was given, the server says one plan for ever.
STAND_IN_CONVERTER = f"""#!{sys.executable}
import json, pathlib, sys
model, _, file, *rest = sys.argv[1:]
given = {{path.name: path.stat().st_size for path in pathlib.Path(model).iterdir()}}
settings = pathlib.Path(model) / "config.json"
dtype = json.loads(settings.read_text())["dtype"] if settings.exists() else ""
record = {{"arguments": sys.argv[1:], "given": given, "dtype": dtype}}
pathlib.Path(__file__).with_name("{RECORD}").write_text(json.dumps(record))
pathlib.Path(file).write_bytes(b"GGUF, a stand-in")
"""
STAND_IN_SERVER = f"""#!{sys.executable}
import json, pathlib, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
pathlib.Path(__file__).with_name("{SERVED}").write_text(json.dumps(sys.argv))
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send({{"status": "ok"}})
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert asked["temperature"] == 0 and asked["prompt"].endswith(":"), asked
        self.send({{"choices": [{{"text": " Who is it?\\nQuestion: more"}}]}})
    def send(self, value):
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
"""

Call = Callable[..., Result]


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("export")
    return write_adapter(root / "adapter", write_base(root / "base"))


@pytest.fixture(scope="module")
def set_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_set(tmp_path_factory.mktemp("set") / "toy", train=1, dev=3)


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Call:
    """The command, where no program of llama.cpp is installed."""
    for name in (CONVERTER_VARIABLE, SERVER_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    return lambda *arguments: CliRunner().invoke(export, [*map(str, arguments)])


def write_program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_an_export_for_transformers_has_tokenizer_generation_and_card_and_plans_as_its_adapter(
    adapter: Path, set_folder: Path, call: Call, tmp_path: Path
) -> None:
    out = tmp_path / "hf"
    done = call(adapter, "--out", out, "--check", set_folder, "--questions", 2, "--json")
    assert done.exit_code == 0, done.output
    files = MERGED.read_manifest(out, verify=True)["files"].keys()
    assert {"model.safetensors", "tokenizer.json", "generation_config.json", "README.md", "config.json"} <= files
    check = json.loads(done.stdout)["check"]
    assert check["asked"] == 6, "two for each of three languages"

    model, tokenizer = AutoModelForCausalLM.from_pretrained(out), AutoTokenizer.from_pretrained(out)
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id and not model.generation_config.do_sample
    card = (out / "README.md").read_text()
    assert yaml.safe_load(card.split("---\n")[1])["library_name"] == "transformers"
    assert f"{6 - len(check['differences'])} of 6 plans are word for word" in card


def test_a_converter_is_given_the_merged_model_and_ollama_a_modelfile_with_prompt_and_stops(
    adapter: Path, call: Call, tmp_path: Path
) -> None:
    converter, out = write_program(tmp_path / CONVERTER, STAND_IN_CONVERTER), tmp_path / "ollama"
    done = call(adapter, "--format", "ollama", "--weights", "q8_0", "--converter", converter, "--out", out)
    assert done.exit_code == 0, done.output
    record = json.loads((tmp_path / RECORD).read_text())
    assert record["arguments"][1::2][:3] == ["--outfile", "--outtype", "--model-name"]
    assert record["arguments"][4] == "q8_0" and record["dtype"] == "float32"
    assert {"model.safetensors", "tokenizer.json"} <= record["given"].keys()

    manifest = GGUF.read_manifest(out, verify=True)
    wanted = {"revelator.gguf", "Modelfile", "Modelfile.tasks", "README.md", "fingerprints.npz"}
    assert manifest["files"].keys() == wanted
    before, after = TRANSLATE_BNF.template.split("$question")
    end = AutoTokenizer.from_pretrained(adapter).eos_token
    written = (out / "Modelfile").read_text()
    assert f'FROM ./revelator.gguf\nTEMPLATE """{before}{{{{ .Prompt }}}}{after}"""\n' in written
    assert f'PARAMETER stop "{end}"\nPARAMETER stop "\n"\n' in written
    assert 'TEMPLATE """{{ .Prompt }}"""' in (out / "Modelfile.tasks").read_text()


def test_an_adapter_alone_is_converted_beside_its_base_and_checked_on_it(
    adapter: Path, set_folder: Path, call: Call, tmp_path: Path
) -> None:
    write_program(tmp_path / LORA_CONVERTER, STAND_IN_CONVERTER)
    write_program(tmp_path / CONVERTER, f"#!{sys.executable}\nraise SystemExit('nothing is to be merged')\n")
    server = write_program(tmp_path / "llama-server", STAND_IN_SERVER)
    base, out = tmp_path / "base.gguf", tmp_path / "lora"
    base.write_bytes(b"GGUF, a stand-in")
    given = ["--converter", tmp_path / CONVERTER, "--llama-server", server, "--check", set_folder, "--questions", 1]
    error = call(adapter, "--format", "lora", "--out", out, *given).exception
    assert isinstance(error, ConfigError) and "--base-gguf FILE" in str(error)
    done = call(adapter, "--format", "lora", "--out", out, "--base-gguf", base, *given)
    assert done.exit_code == 0 and "0 of 3 plans" in done.output, done.output
    given_to_converter = json.loads((tmp_path / RECORD).read_text())["arguments"]
    assert given_to_converter[0] == str(adapter)
    assert given_to_converter[4:] == ["f16", "--base", str(adapter.parent / "base")]
    served = json.loads((tmp_path / SERVED).read_text())
    assert served[served.index("-m") + 1] == str(base)
    assert Path(served[served.index("--lora") + 1]).name == LORA_FILE
    assert GGUF.read_manifest(out, verify=True)["files"].keys() == {LORA_FILE, "README.md", "fingerprints.npz"}
    assert f"llama-server -m BASE.gguf --lora {LORA_FILE}" in (out / "README.md").read_text()


def test_the_converter_is_found_on_the_path_or_in_the_environment(
    adapter: Path, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    converter = write_program(tmp_path / "bin" / CONVERTER, STAND_IN_CONVERTER)
    monkeypatch.setenv("PATH", str(converter.parent))
    assert call(adapter, "--format", "gguf", "--out", tmp_path / "one").exit_code == 0
    monkeypatch.setenv("PATH", str(tmp_path))
    converter.chmod(0o644)  # a script that is no program is run by this Python
    monkeypatch.setenv(CONVERTER_VARIABLE, str(converter))
    assert call(adapter, "--format", "gguf", "--out", tmp_path / "two").exit_code == 0
    assert (tmp_path / "two" / "revelator.gguf").is_file()


def test_without_a_converter_the_commands_to_run_are_printed_and_nothing_is_left(
    adapter: Path, call: Call, tmp_path: Path
) -> None:
    out = tmp_path / "gguf"
    error = call(adapter, "--format", "gguf", "--out", out).exception
    assert isinstance(error, ConfigError)
    assert f"revelator model export {adapter} --format hf --out {out}-hf" in str(error)
    assert f"python llama.cpp/{CONVERTER} {out}-hf --outfile {out}.gguf --outtype" in str(error)
    assert list(tmp_path.iterdir()) == []


def test_a_converter_that_fails_is_quoted_and_nothing_is_left(adapter: Path, call: Call, tmp_path: Path) -> None:
    failing = f"#!{sys.executable}\nimport sys\nprint('BPE pre-tokenizer was not recognized')\nsys.exit(3)\n"
    converter = write_program(tmp_path / CONVERTER, failing)
    error = call(adapter, "--format", "gguf", "--converter", converter, "--out", tmp_path / "gguf").exception
    assert isinstance(error, ArtifactError) and "status 3 and said: BPE pre-tokenizer was not recognized" in str(error)
    assert list(tmp_path.iterdir()) == [converter]


def test_the_plans_of_a_gguf_are_asked_of_llama_server_and_those_that_differ_are_listed(
    adapter: Path, set_folder: Path, call: Call, tmp_path: Path
) -> None:
    converter = write_program(tmp_path / CONVERTER, STAND_IN_CONVERTER)
    server = write_program(tmp_path / "llama-server", STAND_IN_SERVER)
    given = ["--converter", converter, "--llama-server", server, "--check", set_folder, "--questions", 1]
    done = call(adapter, "--format", "gguf", "--out", tmp_path / "gguf", *given)
    assert done.exit_code == 0 and "0 of 3 plans are word for word those of the adapter" in done.output
    asked = {TRANSLATE_BNF.read_question(row.prompt) for row in read_split(set_folder, "dev")}
    listed = [line.partition(": ")[2] for line in done.output.splitlines() if line.startswith("  translate_bnf: ")]
    assert len(listed) == 1 and listed[0] in asked
    assert done.output.count("export:  Who is it?\n") == 3
    assert len(GGUF.read_manifest(tmp_path / "gguf")["check"]["differences"]) == 3


def test_a_server_that_ends_says_why(tmp_path: Path) -> None:
    failing = f"#!{sys.executable}\nprint('error loading model: unknown architecture')\n"
    server = find_server(write_program(tmp_path / "llama-server", failing))
    with pytest.raises(ServingError, match="unknown architecture"), serve_gguf(server, tmp_path / "x.gguf"):
        pass


def test_a_check_without_llama_server_is_refused_before_any_work(
    adapter: Path, set_folder: Path, call: Call, tmp_path: Path
) -> None:
    converter = write_program(tmp_path / CONVERTER, STAND_IN_CONVERTER)
    given = ["--converter", converter, "--check", set_folder, "--out", tmp_path / "gguf"]
    error = call(adapter, "--format", "gguf", *given).exception
    assert isinstance(error, ConfigError) and "--llama-server" in str(error)
    assert list(tmp_path.iterdir()) == [converter]


def test_the_embedded_base_is_refused_with_the_reason_and_a_way_out(call: Call, tmp_path: Path) -> None:
    folder = tmp_path / "adapter"
    folder.mkdir()
    (folder / "adapter_model.safetensors").write_bytes(b"")
    digest = digest_base(find_base("mini"))
    write_manifest(folder, base_name="mini", base_digest=digest, data_digest="", run_id="")
    error = call(folder, "--format", "gguf", "--out", tmp_path / "gguf").exception
    assert isinstance(error, ArtifactError) and "prefix language model, an architecture of our own" in str(error)
    assert "--format hf" in str(error) and "revelator train smollm2-135m" in str(error)
    assert not (tmp_path / "gguf").exists()


def test_what_is_no_export_is_not_overwritten(adapter: Path, call: Call, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter").write_text("years of work")
    for form, kind in (("hf", "a merged model"), ("gguf", "a GGUF export")):
        error = call(adapter, "--format", form, "--out", tmp_path / "thesis").exception
        assert isinstance(error, ConfigError) and f"something stands there that is not {kind}" in str(error)


@pytest.mark.llm
@pytest.mark.timeout(900)
def test_llama_cpp_itself_converts_and_serves_the_adapters_plans_word_for_word(
    set_folder: Path, tmp_path: Path
) -> None:
    """On a base whose tokenizer llama.cpp knows, such as SmolLM2-135M-Instruct."""
    named = [os.environ.get(name) for name in (CONVERTER_VARIABLE, SERVER_VARIABLE, "REVELATOR_LLM_BASE")]
    if not all(named):
        pytest.skip(f"{CONVERTER_VARIABLE}, {SERVER_VARIABLE} and REVELATOR_LLM_BASE name no llama.cpp and no base")
    base = Path(str(named[2]))
    adapter = write_small_adapter(tmp_path / "adapter", base, seed=1, share=0.02)
    about = {"base_name": str(base), "base_digest": digest_base(base), "data_digest": "", "run_id": ""}
    write_manifest(adapter, **about, tasks=[TRANSLATE_BNF.name])
    given = ["--format", "gguf", "--weights", "f32", "--check", str(set_folder), "--questions", "2"]
    done = CliRunner().invoke(export, [str(adapter), *given, "--out", str(tmp_path / "gguf")])
    assert done.exit_code == 0 and "2 of 2 plans are word for word" in done.output, done.output


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--format", "agent", "--out", "x"], "--out has no meaning with --format agent"),
        (["--out", "x", "--index", "y"], "add --format agent"),
        (["--format", "gguf"], "--out is needed: the folder of the gguf export"),
    ],
)
def test_an_option_of_another_format_is_refused(given: list[str], said: str) -> None:
    refused = CliRunner().invoke(export, given)
    assert said in f"{refused.output}{refused.exception}"
