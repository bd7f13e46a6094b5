"""An image's name comes from its inputs, and what runs from its digest."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from spec.image_reference import parse_image_reference
from stacks import images
from stacks.images import Image, ImageError

DIGEST = "sha256:" + "0" * 64
IMAGE = Image("registry:5000", "knobless/platform", "abc")


def checkout(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


FILES = {
    "spec/a.py": "a",
    "controllers/b.py": "b",
    "requirements/platform.txt": "c",
    "images/platform/Containerfile": "d",
    "images/base/Containerfile": "e",
}


def tag(root: Path) -> str:
    return images.own_image("registry:5000", root, images.PLATFORM).tag


def test_equal_inputs_have_equal_tags_wherever_they_lie(tmp_path: Path) -> None:
    assert tag(checkout(tmp_path / "one", FILES)) == tag(checkout(tmp_path / "two", FILES))


@pytest.mark.parametrize("name", FILES)
def test_a_change_of_any_input_is_another_tag(tmp_path: Path, name: str) -> None:
    before = tag(checkout(tmp_path / "one", FILES))
    assert tag(checkout(tmp_path / "two", FILES | {name: "changed"})) != before


def test_a_moved_file_is_another_tag(tmp_path: Path) -> None:
    before = tag(checkout(tmp_path / "one", FILES))
    moved = {("spec/z.py" if name == "spec/a.py" else name): text for name, text in FILES.items()}
    assert tag(checkout(tmp_path / "two", moved)) != before


@pytest.mark.parametrize("name", ["spec/__pycache__/a.cpython-311.pyc", "README.md", "tests/test_a.py", "stacks/a.py"])
def test_what_is_no_input_changes_no_tag(tmp_path: Path, name: str) -> None:
    before = tag(checkout(tmp_path / "one", FILES))
    assert tag(checkout(tmp_path / "two", FILES | {name: "added"})) == before


def test_a_tag_is_one_that_a_registry_takes(tmp_path: Path) -> None:
    assert len(tag(checkout(tmp_path, FILES))) == 16


def test_a_checkout_without_the_inputs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="images/platform"):
        tag(tmp_path)


def client(answer: httpx.Response | Exception, seen: list[httpx.Request] | None = None) -> httpx.Client:
    def handle(request: httpx.Request) -> httpx.Response:
        if seen is not None:
            seen.append(request)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return httpx.Client(transport=httpx.MockTransport(handle))


def test_a_tag_becomes_the_digest_that_the_registry_says() -> None:
    found = images.resolve(client(httpx.Response(200, headers={"Docker-Content-Digest": DIGEST})), IMAGE, "http")
    assert found == f"registry:5000/knobless/platform@{DIGEST}"


@pytest.mark.parametrize(
    ("registry", "url"),
    [
        ("registry:5000", "https://registry:5000/v2/knobless/platform/manifests/abc"),
        ("host.example/a/b", "https://host.example/v2/a/b/knobless/platform/manifests/abc"),
    ],
)
def test_a_registry_s_path_stands_before_the_repository(registry: str, url: str) -> None:
    seen: list[httpx.Request] = []
    answering = client(httpx.Response(200, headers={"Docker-Content-Digest": DIGEST}), seen)
    found = images.resolve(answering, Image(registry, "knobless/platform", "abc"), "https")
    assert [(request.method, str(request.url)) for request in seen] == [("HEAD", url)]
    assert found == f"{registry}/knobless/platform@{DIGEST}"


def test_docker_hub_is_asked_where_it_answers_and_named_as_people_name_it() -> None:
    seen: list[httpx.Request] = []
    answering = client(httpx.Response(200, headers={"Docker-Content-Digest": DIGEST}), seen)
    reference = parse_image_reference("docker.io/library/redis:7")
    found = images.resolve(answering, images.reference_image(reference), "https")
    assert str(seen[0].url) == "https://registry-1.docker.io/v2/library/redis/manifests/7"
    assert found == f"docker.io/library/redis@{DIGEST}"


@pytest.mark.parametrize("name", images.OWN)
def test_what_goes_into_an_own_image_is_in_the_checkout(name: str) -> None:
    root = Path(__file__).parents[2]
    assert all((root / each).exists() for each in images.OWN[name].inputs)
    assert f"images/{images.OWN[name].folder}" in images.OWN[name].inputs
    assert len(images.own_image("r", root, name).tag) == 16


@pytest.mark.parametrize(
    ("engine", "gpus", "flavor", "image"),
    [
        ("vllm", 0, "transformers", "vllm"),
        ("vllm", 1, "transformers", "vllm-gpu"),
        ("vllm", 8, "transformers", "vllm-gpu"),
        ("triton", 0, "onnx", "triton"),
        ("triton", 1, "onnx", "triton"),
        ("triton", 0, "pytorch", "triton-torch"),
        ("triton", 1, "pytorch", "triton-torch"),
    ],
)
def test_an_engine_s_image_has_the_packages_that_its_model_and_gpus_need(
    engine: str, gpus: int, flavor: str, image: str
) -> None:
    assert images.engine_image(engine, gpus, flavor) == image
    assert image in images.OWN


@pytest.mark.parametrize("names", [("vllm", "vllm-gpu"), ("triton", "triton-torch")])
def test_other_packages_are_another_image(names: tuple[str, str]) -> None:
    root = Path(__file__).parents[2]
    assert len({images.own_image("r", root, name).tag for name in names}) == 2


def test_a_tag_that_is_not_there_is_none() -> None:
    assert images.find(client(httpx.Response(404)), IMAGE, "http") is None


def test_a_manifest_and_an_index_are_both_taken() -> None:
    seen: list[httpx.Request] = []
    images.resolve(client(httpx.Response(200, headers={"Docker-Content-Digest": DIGEST}), seen), IMAGE, "http")
    accepted = seen[0].headers["Accept"]
    assert "application/vnd.oci.image.index.v1+json" in accepted
    assert "application/vnd.docker.distribution.manifest.v2+json" in accepted


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            httpx.Response(404),
            r"the image registry:5000/knobless/platform:abc is not in the registry: run `knobless build`",
        ),
        (
            httpx.Response(401),
            "the registry registry:5000 answers 401 for .*: log in with `buildah login registry:5000`",
        ),
        (httpx.Response(403), "the registry registry:5000 answers 403 for .*REGISTRY_AUTH_FILE"),
        (httpx.Response(500), "the registry registry:5000 answers 500 for registry:5000/knobless/platform:abc$"),
        (httpx.Response(200), "the registry registry:5000 answers 200"),
        (httpx.ConnectError("refused"), "the registry registry:5000 does not answer: refused"),
        (httpx.ConnectTimeout(""), "the registry registry:5000 does not answer: ConnectTimeout"),
    ],
)
def test_an_image_that_cannot_be_named_says_why_and_what_to_do(
    answer: httpx.Response | Exception, message: str
) -> None:
    with pytest.raises(ImageError, match=message):
        images.resolve(client(answer), IMAGE, "http")


IMPORT = re.compile(r"^\s*(?:from|import) (runtimes[\w.]*)(?: import ([\w, ]+))?", re.MULTILINE)


@pytest.mark.parametrize(
    "inputs",
    [*(own.inputs for name, own in images.OWN.items() if name != images.PLATFORM), images.MODEL_INPUTS],
    ids=[*(name for name in images.OWN if name != images.PLATFORM), "model"],
)
def test_what_an_image_imports_of_ours_goes_into_it(inputs: tuple[str, ...]) -> None:
    root = Path(__file__).parents[2]
    given = [root / each for each in inputs if each.startswith("runtimes/")]
    sources = [path for each in given for path in ([each] if each.suffix == ".py" else each.rglob("*.py"))]
    for source in sources:
        for module, names in IMPORT.findall(source.read_text()):
            path = root / module.replace(".", "/")
            below = [path / f"{name.strip()}.py" for name in names.split(",")]
            wanted = [each for each in (*below, path.with_suffix(".py"), path / "__init__.py") if each.is_file()]
            assert set(wanted) <= set(sources), f"{source}: {module}"


@pytest.mark.parametrize("pins", ["go.mod", "go.sum"])
def test_other_pins_of_a_compiled_program_are_another_image(tmp_path: Path, pins: str) -> None:
    folder = "embedded/toolchain"
    files = {f"{folder}/modules/leaderworkerset/{name}": name for name in ("go.mod", "go.sum")}
    files |= {f"{folder}/versions.py": "a", f"{folder}/planning.py": "b", "images/leaderworkerset/Containerfile": "c"}
    other = files | {f"{folder}/modules/leaderworkerset/{pins}": "changed"}
    roots = checkout(tmp_path / "one", files), checkout(tmp_path / "two", other)
    one, two = (images.own_image("registry:5000", root, images.LEADER_WORKER_SET) for root in roots)
    assert one.tag != two.tag
