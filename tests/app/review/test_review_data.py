"""What the page of ``ccmn review`` shows of the rows of a file."""

import pytest

LABELS = ("--labels", "sea,sky")


@pytest.fixture(autouse=True)
def table(tmp_path, monkeypatch):
    """Folder with a table of texts in text.csv."""
    lines = ["red boat at sea,1.5,1,0", "blue sky today,2,0,1", "nothing here,3,0,"] * 20
    (tmp_path / "text.csv").write_text("\n".join(["words,size,sea,sky", *lines]) + "\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_texts_are_displayed(reviewing):
    def use(client, session):
        page = client.post("/select", {"row": 2})
        assert '<blockquote class="content short"' in page.text
        assert "nothing here" in page.text
        assert "not observed" in page.text

    reviewing(use, "text.csv", *LABELS, "--text", "words")


def test_only_pictures_inside_the_folder_are_displayed(reviewing, rejected, table):
    folder = table / "pictures"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "a.PNG").write_bytes(b"picture")
    (folder / "page.svg").write_text("<svg onload='alert(1)'/>")
    (folder / "page.html").write_text("<p>")
    (table / "secret.png").write_bytes(b"secret")
    (folder / "link.png").symlink_to(table / "secret.png")
    names = ["inner/a.PNG", "inner/../inner/a.PNG", "../secret.png", str(table / "secret.png"), "link.png"]
    names += ["page.svg", "page.html", "absent.png", "inner"]
    lines = [f"{names[i % len(names)]},{i / 7:.3f},{i % 2},{i % 3 // 2}" for i in range(63)]
    (table / "files.csv").write_text("\n".join(["file,size,sea,sky", *lines]) + "\n")
    options = ("files.csv", *LABELS, "--image", "file", "--image-dir")

    def use(client, session):
        found = [client.get(f"/picture/{row}") for row in range(len(names))]
        assert [answer.body for answer in found[:2]] == [b"picture"] * 2
        assert [answer.status for answer in found] == [200] * 2 + [404] * 7
        assert found[0].headers["content-type"] == "image/png"
        assert 'src="/picture/5"' in client.post("/select", {"row": 5}).text

    reviewing(use, *options, "pictures")
    assert "nowhere" in rejected("review", *options, "nowhere", "--out", "other")


def test_features_as_pictures(reviewing, files):
    def use(client, session):
        picture = client.get("/picture/0")
        assert picture.headers["content-type"] == "image/png"
        assert picture.body.startswith(b"\x89PNG")
        assert client.get("/picture/300").status == 404

    reviewing(use, "task.npz", "--picture", "2x2")


def test_invalid_options_are_rejected(rejected, table):
    message = rejected("review", "text.csv", *LABELS, "--text", "words", "--picture", "1x1", code=2)
    assert "at most one of --text, --picture and --image" in message
    (table / "bare.csv").write_text("file,sea\na.png,1\n")
    assert "bare.csv: there are no features" in rejected("review", "bare.csv", "--labels", "sea", "--image", "file")


def test_rows_of_a_table_are_displayed_as_in_the_file(reviewing, table):
    lines = [f"C{i},{'IT' if i % 2 else ''},2024-05-0{i % 9 + 1},{20 + i * i}.5,{i % 2}" for i in range(40)]
    (table / "table.csv").write_text("\n".join(["customer,country,since,income,uses", *lines]) + "\n")

    def use(client, session):
        page = client.post("/select", {"row": 2}).text
        cells = [("country", "–"), ("since", "2024-05-03"), ("income", "24.5")]
        assert all(f'<th scope="row">{name}</th><td>{value}</td>' in page for name, value in cells)
        assert "since: 2024-05-03, income: 24.5" in client.get("/rows?row=2").text

    reviewing(use, "table.csv", "--labels", "uses", "--id", "customer")
