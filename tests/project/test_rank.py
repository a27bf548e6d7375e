"""Which files and definitions of a project matter for a request: what it names, says, quotes and
traces.
"""

import os
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom.project.index.columns import make_columns
from loom.project.index.entries import ReadFile
from loom.project.index.making import entry_of
from loom.project.index.project_index import ProjectIndex
from loom.project.index.roles import ROLES, is_copied, role_of_path
from loom.project.index.strings import StringTable
from loom.project.rank.lookup import lookup_of
from loom.project.rank.ranking import MapRequest, rank_files
from loom.project.rank.request import Frame, read_request
from tests.shared import ROOT, examples

PYTHON_CART = '''
"""The basket of a customer."""

from shop.money import rounded


class Cart:
    def __init__(self):
        self.items = []

    def add(self, item, amount):
        if amount < 1:
            raise ValueError(f"cannot put {amount} of {item} into a cart")
        self.items.append((item, amount))

    def total_price(self):
        return rounded(sum(item.price * amount for item, amount in self.items))
'''
PYTHON_MONEY = """
def rounded(amount):
    return round(amount, 2)


def exchange_rate(currency):
    return RATES[currency]
"""
PYTHON_ORDERS = """
from shop.cart import Cart


def place_order(cart):
    total = cart.total_price()
    return submit(total)


def submit(total):
    return total


def cancel_order(number):
    return number
"""
PYTHON_REPORTS = """
def monthly_report(month):
    return month


def yearly_report(year):
    return year
"""
PYTHON_READERS = """
def read_catalogue(path):
    # 读取商品目录并检查价格
    return path


def write_catalogue(path):
    return path
"""
PYTHON_TESTS = """
from shop.cart import Cart


def test_total_price_of_cart():
    assert Cart().total_price() == 0


def test_cart_adds_items():
    Cart().add('apple', 1)
"""
JAVASCRIPT = """
const http = require('http');

function startServer(port) {
  return http.createServer(handleRequest).listen(port);
}

function handleRequest(req, res) {
  res.end(renderPage(req.url));
}

function renderPage(url) {
  return url;
}
"""
TYPESCRIPT = """
export class ApiClient {
  fetchOrders(limit: number) {
    return limit;
  }
  retryLater() {
    return 1;
  }
}
"""
GO = """
package store

type Pool struct{}

func (p *Pool) Acquire(n int) error {
	return nil
}

func OpenPool(url string) *Pool {
	return nil
}
"""
RUST = """
pub struct Ledger;

impl Ledger {
    pub fn post_entry(&self) {}
    pub fn close_year(&self) {}
}
"""
JAVA = """
public class Invoice {
  public void print() {
    System.out.println(1);
  }
  public int due() {
    return 1;
  }
}
"""
RUBY = """
class Mailer
  def deliver(message)
    message
  end

  def bounce!(message)
    message
  end
end
"""
ELIXIR = """
defmodule Shop.Session do
  def open(user), do: user

  def expire(session), do: session
end
"""
DOCUMENT = (
    "# The cart\n\nThe total price of a cart is the sum of its items. Items are added to the "
    "cart.\n"
)
SHOP = {
    "shop/cart.py": PYTHON_CART,
    "shop/money.py": PYTHON_MONEY,
    "shop/orders.py": PYTHON_ORDERS,
    "shop/reports.py": PYTHON_REPORTS,
    "shop/readers.py": PYTHON_READERS,
    "web/server.js": JAVASCRIPT,
    "web/api.ts": TYPESCRIPT,
    "store/db.go": GO,
    "core/src/lib.rs": RUST,
    "app/src/main/java/Invoice.java": JAVA,
    "lib/mailer.rb": RUBY,
    "lib/session.ex": ELIXIR,
    "tests/test_cart.py": PYTHON_TESTS,
    "docs/cart.md": DOCUMENT,
    "vendor/cart/cart.py": "class Cart:\n    def total_price(self):\n        return 0\n",
    "README.md": "# Shop\n\nA cart, orders and reports.\n",
}


def indexed(root: Path, files: dict[str, str]) -> ProjectIndex:
    for path, text in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.lstrip("\n"), encoding="utf-8")
    index = ProjectIndex(root)
    index.update()
    return index


def holding(root: Path, texts: dict[str, str]) -> ProjectIndex:
    """An index of files that are nowhere else."""
    index = ProjectIndex(root)
    files = [ReadFile(entry_of(path, text), b"") for path, text in texts.items()]
    index.hold(make_columns(files, StringTable()))
    return index


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> ProjectIndex:
    return indexed(tmp_path_factory.mktemp("shop"), SHOP)


def best(index: ProjectIndex, query: str, touched: tuple[str, ...] = ()) -> tuple[str, str]:
    """The first file for a request, and the first definition in it."""
    first = rank_files(index, MapRequest(query=query, touched=touched))[0]
    return first.path, first.definitions[0].path if first.definitions else ""


@pytest.mark.parametrize(
    ("query", "path", "definition"),
    [
        ("total_price is wrong when the cart is empty", "shop/cart.py", "Cart.total_price"),
        ("Why does `Cart.add` accept strings?", "shop/cart.py", "Cart.add"),
        ("cancelling an order twice fails", "shop/orders.py", "cancel_order"),
        ("yearly reports miss December", "shop/reports.py", "yearly_report"),
        ("商品目录的价格检查不对", "shop/readers.py", "read_catalogue"),
        ("look at shop/money.py, the rate of a currency", "shop/money.py", "exchange_rate"),
        (r"see C:\work\shop\money.py: rounded", "shop/money.py", "rounded"),
        ("shop.reports.monthly_report is slow", "shop/reports.py", "monthly_report"),
        ("the page is rendered without its url", "web/server.js", "renderPage"),
        ("ApiClient should retry", "web/api.ts", "ApiClient.retryLater"),
        ("pool: acquire returns nil", "store/db.go", "Pool.Acquire"),
        ("closing the year of a ledger", "core/src/lib.rs", "Ledger.close_year"),
        ("when is an invoice due?", "app/src/main/java/Invoice.java", "Invoice.due"),
        ("bounced mail is lost", "lib/mailer.rb", "Mailer.bounce!"),
        ("sessions never expire", "lib/session.ex", "Shop.Session.expire"),
        ("ValueError: cannot put 0 of apple into a cart", "shop/cart.py", "Cart.add"),
    ],
)
def test_what_a_request_is_about_comes_first(
    shop: ProjectIndex, query: str, path: str, definition: str
) -> None:
    assert best(shop, query) == (path, definition)


@pytest.mark.parametrize(
    ("trace", "path", "definition"),
    [
        (
            '  File "/home/me/shop/orders.py", line 5, in place_order\n    total = '
            "cart.total_price()",
            "shop/orders.py",
            "place_order",
        ),
        (
            '  File "/x/site-packages/shop/orders.py", line 10, in <module>',
            "shop/orders.py",
            "submit",
        ),
        ("shop/money.py:6: KeyError", "shop/money.py", "exchange_rate"),
        ("    at renderPage (/srv/web/server.js:12:10)", "web/server.js", "renderPage"),
        (
            "\tat com.shop.Invoice.due(Invoice.java:6)",
            "app/src/main/java/Invoice.java",
            "Invoice.due",
        ),
        ("goroutine 1 [running]:\n\t/src/store/db.go:6 +0x1d", "store/db.go", "Pool.Acquire"),
        ("thread 'main' panicked at core/src/lib.rs:5:9:", "core/src/lib.rs", "Ledger.close_year"),
        ("lib/mailer.rb:3:in `deliver'", "lib/mailer.rb", "Mailer.deliver"),
        (
            "    (shop 0.1.0) lib/session.ex:4: Shop.Session.expire/1",
            "lib/session.ex",
            "Shop.Session.expire",
        ),
    ],
)
def test_a_frame_of_a_trace_names_the_definition_at_its_line(
    shop: ProjectIndex, trace: str, path: str, definition: str
) -> None:
    assert best(shop, f"It broke:\n```\n{trace}\n```\n") == (path, definition)


def test_frames_of_the_project_come_before_those_of_others(shop: ProjectIndex) -> None:
    trace = (
        'File "/usr/lib/python3/web/session.py", line 3, in open\nFile "/home/me/shop/money.py", '
        "line 6, in exchange_rate\n"
    )
    assert best(shop, f"Crash\n```\n{trace}```") == ("shop/money.py", "exchange_rate")


def test_tests_documents_and_foreign_code_come_behind_the_source(shop: ProjectIndex) -> None:
    order = [
        one.path
        for one in rank_files(shop, MapRequest(query="the total price of a cart with no items"))
    ]
    assert order[0] == "shop/cart.py"
    assert (
        min(
            order.index(path)
            for path in ("tests/test_cart.py", "docs/cart.md", "vendor/cart/cart.py")
        )
        > 0
    )


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ("Add tests for the cart", "tests/test_cart.py"),
        ("Fix the documentation of the cart: total price of items", "docs/cart.md"),
    ],
)
def test_what_is_asked_for_expressly_is_not_weighed_down(
    shop: ProjectIndex, query: str, path: str
) -> None:
    places = [one.path for one in rank_files(shop, MapRequest(query=query))]
    otherwise = [
        one.path for one in rank_files(shop, MapRequest(query="the cart: total price of items"))
    ]
    assert places.index(path) <= min(1, otherwise.index(path))


def test_who_calls_what_is_named_comes_before_the_rest(shop: ProjectIndex) -> None:
    order = [one.path for one in rank_files(shop, MapRequest(query="total_price"))]
    assert order.index("shop/orders.py") < order.index("shop/reports.py")


def test_what_the_conversation_touched_comes_forward(shop: ProjectIndex) -> None:
    asked = "and what about the name of it?"
    assert best(shop, asked, touched=("shop/cart.py", "store/db.go"))[0] == "store/db.go"
    assert best(shop, "", touched=("shop/cart.py", "Ledger.post_entry")) == (
        "core/src/lib.rs",
        "Ledger.post_entry",
    )


def test_without_a_request_what_others_use_comes_first(tmp_path: Path) -> None:
    users = {
        f"app/user{n}.py": (
            f"from app.kernel import Kernel\n\n\ndef use{n}():\n    return Kernel().run_all()\n"
        )
        for n in range(5)
    }
    kernel = (
        "def _hidden():\n    pass\n\n\nclass Kernel:\n    def run_all(self):\n        pass\n\n    "
        "def unused(self):\n        pass\n"
    )
    index = indexed(
        tmp_path,
        {
            **users,
            "app/kernel.py": kernel,
            "tests/test_kernel.py": "def test_kernel():\n    pass\n",
        },
    )
    found = rank_files(index, MapRequest())
    assert found[0].path == "app/kernel.py"
    assert found[0].relevance == "high"
    assert [one.name for one in found[0].definitions][:2] == ["Kernel", "run_all"]
    assert found[-1].path == "tests/test_kernel.py"


def test_a_request_that_says_nothing_here_is_as_none(shop: ProjectIndex) -> None:
    alone = rank_files(shop, MapRequest())
    assert rank_files(shop, MapRequest(query="zzz qqq xxx")) == alone
    assert rank_files(shop, MapRequest(query="  \n ")) == alone


def test_behind_what_answers_comes_what_matters_most(tmp_path: Path) -> None:
    users = {
        f"a/user{n}.py": f"from z.kernel import run_all\n\n\ndef use{n}():\n    return run_all()\n"
        for n in range(5)
    }
    kernel = "VERSION = 1\n\n\ndef run_all():\n    pass\n"
    index = indexed(
        tmp_path,
        {
            **users,
            "z/kernel.py": kernel,
            "m/words.py": "def f():\n    # пароль пользователя\n    pass\n",
        },
    )
    found = rank_files(index, MapRequest(query="Где проверяется пароль?"))
    assert [one.path for one in found][:2] == ["m/words.py", "z/kernel.py"]
    assert found[1].definitions[0].name == "run_all"
    assert found[1].relevance == "low"


def test_a_vague_request_does_not_call_everything_relevant(tmp_path: Path) -> None:
    texts = {
        f"app/part{n:03}.py": (
            f"def {'handle_request' if n < 80 else 'other'}_{n}(x):\n    return x\n"
        )
        for n in range(400)
    }
    index = holding(tmp_path, texts)
    labels = [one.relevance for one in rank_files(index, MapRequest(query="handle the request"))]
    assert 0 < labels.count("high") <= 16
    assert labels.count("high") + labels.count("medium") <= 48


def test_without_a_request_helpers_and_common_words_come_behind(tmp_path: Path) -> None:
    stack = (
        "def wrapped():\n    def inner_call():\n        pass\n    return inner_call\n\n\n"
        "class Stack:\n    def push(self):\n        pass\n\n    def merge_frames(self):\n      "
        "  pass\n"
    )
    user = (
        "from app.stack import Stack\n\n\ndef use{0}():\n    s = Stack()\n    s.push()\n    "
        "s.merge_frames()\n    inner_call()\n"
    )
    store = "package store\n\nfunc openPool() {}\n\nfunc OpenPool() {}\n"
    callers = {
        f"go/c{n}.go": f"package store\n\nfunc Call{n}() {{\n\topenPool()\n\tOpenPool()\n}}\n"
        for n in range(4)
    }
    users = {f"app/user{n}.py": user.format(n) for n in range(4)}
    found = {
        one.path: one
        for one in rank_files(
            indexed(tmp_path, {"app/stack.py": stack, "go/store.go": store, **callers, **users}),
            MapRequest(),
        )
    }
    names = [one.name for one in found["app/stack.py"].definitions]
    assert names[0] == "Stack"
    assert names.index("merge_frames") < names.index("push") < names.index("inner_call")
    assert [one.name for one in found["go/store.go"].definitions] == ["OpenPool", "openPool"]


def test_tests_inside_a_source_file_come_behind(tmp_path: Path) -> None:
    text = (
        "pub fn parse_line(x: u8) -> u8 { x }\n\nmod tests {\n    fn parse_line_twice() { "
        "parse_line(parse_line(1)); }\n}\n"
    )
    index = indexed(tmp_path, {"src/lib.rs": text})
    assert best(index, "parse_line twice") == ("src/lib.rs", "parse_line")


def test_an_empty_project_has_nothing(tmp_path: Path) -> None:
    assert rank_files(indexed(tmp_path, {}), MapRequest(query="anything")) == []
    assert rank_files(ProjectIndex(tmp_path), MapRequest()) == []


def test_shares_are_chances_and_labels_follow_them(shop: ProjectIndex) -> None:
    found = rank_files(shop, MapRequest(query="total_price of the cart"))
    assert sum(one.score for one in found) == pytest.approx(1, abs=1e-6)
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    labels = [one.relevance for one in found]
    assert labels == sorted(labels, key=("high", "medium", "low").index)
    assert labels[0] == "high"
    assert labels.count("low") > len(labels) / 2
    for one in found:
        assert len(one.shares) == len(one.definitions)
        assert sum(one.shares) == pytest.approx(1 if one.definitions else 0)


@pytest.mark.parametrize("others", [10, 40, 400])
def test_the_size_of_a_file_does_not_dilute_its_best_definitions(
    tmp_path: Path, others: int
) -> None:
    best = "".join(
        f"def parse_receipt_{name}(mail):\n    return receipt(mail)\n\n" for name in ("one", "two")
    )
    rest = "".join(
        f"def other_{number}(mail):\n    return {number}\n\n" for number in range(others)
    )
    index = holding(tmp_path, {"large.py": rest + best})
    (file,) = rank_files(index, MapRequest(query="a receipt is parsed wrongly"))
    shown = dict(zip((one.name for one in file.definitions), file.shares, strict=True))
    assert shown["parse_receipt_one"] > 0.4
    assert shown["parse_receipt_two"] > 0.4
    assert sum(sorted(file.shares, reverse=True)[:10]) == pytest.approx(1.0)
    assert list(file.shares) == sorted(file.shares, reverse=True)


def test_files_alike_go_by_path(tmp_path: Path) -> None:
    index = indexed(tmp_path, {f"{name}.py": "def same():\n    pass\n" for name in "cab"})
    assert [one.path for one in rank_files(index, MapRequest(query="same"))] == [
        "a.py",
        "b.py",
        "c.py",
    ]


def test_the_order_does_not_depend_on_the_process(shop: ProjectIndex) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from loom.project.index.project_index import ProjectIndex\n"
        "from loom.project.rank.ranking import MapRequest, rank_files\n"
        "index = ProjectIndex(Path(sys.argv[1])); index.update(); print(rank_files(index, "
        "MapRequest(query=sys.argv[2])))"
    )
    query = "the total price of a cart and its orders, reports, pages, sessions and mail"
    told = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT / "src")}
        command = [sys.executable, "-c", program, str(shop.root), query]
        told.add(
            subprocess.run(
                command, env=environment, capture_output=True, text=True, check=True
            ).stdout
        )
    assert told == {f"{rank_files(shop, MapRequest(query=query))}\n"}


def test_after_a_change_it_is_as_if_all_were_new(tmp_path: Path) -> None:
    index = indexed(tmp_path, SHOP)
    rank_files(index, MapRequest(query="warm up"))
    (tmp_path / "shop" / "refunds.py").write_text(
        "from shop.cart import Cart\n\n\ndef refund_total(cart):\n    return cart.total_price()\n"
    )
    (tmp_path / "lib" / "mailer.rb").unlink()
    index.update()
    fresh = ProjectIndex(tmp_path)
    fresh.update()
    for query in ("refund the total price", ""):
        assert rank_files(index, MapRequest(query=query)) == rank_files(
            fresh, MapRequest(query=query)
        )


def test_requests_at_the_same_time_while_files_change(tmp_path: Path) -> None:
    index = indexed(tmp_path, SHOP)
    queries = [
        "total_price of the cart",
        "cancel an order",
        "",
        "session expire",
        "acquire from the pool",
    ]
    failed: list[BaseException] = []

    def ask() -> None:
        try:
            for query in queries * 3:
                assert rank_files(index, MapRequest(query=query))
        except BaseException as error:
            failed.append(error)

    threads = [Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(6):
        (tmp_path / "shop" / "money.py").write_text(
            f"def rounded_{number}(amount):\n    return total_price_{number}\n"
        )
        index.update()
    for thread in threads:
        thread.join()
    assert not failed
    fresh = ProjectIndex(tmp_path)
    fresh.update()
    for query in queries:
        assert rank_files(index, MapRequest(query=query)) == rank_files(
            fresh, MapRequest(query=query)
        )


# Requests


@pytest.mark.parametrize(
    ("title", "roles"),
    [
        ("Add tests for the cart", {"test"}),
        ("Write a test that fails", {"test"}),
        ("Flaky specs on Windows", {"test"}),
        ("Fix crash in the test client", set()),
        ("Adding a marker in test no longer ignores the failure", set()),
        ("Fix typo in docs", {"document"}),
        ("Improve the documentation of carts", {"document"}),
        ("New example for carts", {"example"}),
        ("The cart is broken", set()),
    ],
)
def test_which_files_a_request_asks_for(title: str, roles: set[str]) -> None:
    assert read_request(f"{title}\n\nAdd tests and fix the docs in what follows.").roles == roles


def test_languages_are_known_by_what_identifiers_call_them() -> None:
    assert {"cpp", "csharp", "fsharp"} <= read_request(
        "C++, C# and F#: the domain of (C++)"
    ).terms.keys()
    assert "cpp" not in read_request("XC++ or C++11").terms


def test_a_request_in_its_parts() -> None:
    request = read_request(
        "Crash in `load_user`\n\nCalling Store.load_user() fails, see "
        "src/store.py:\n\n```\nTraceback (most recent call last):\n"
        '  File "/app/src/store.py", line 12, in load_user\nKeyError: "no user with this '
        'name"\n```\n\n'
        "```\nattrs==19.3.0\nsix    1.14.0\n├── left-pad@1.3.0\n```\n<!-- thanks for reporting "
        "-->\n- [x] I searched"
    )
    assert request.frames == (Frame("/app/src/store.py", 12, "load_user"),)
    assert "src/store.py" in request.paths
    assert request.literals == ("no user with this name",)
    assert request.names["load_user"] > request.names["Store"] > request.names.get("Calling", 0)
    assert not {"attr", "six", "left", "report", "search"} & request.terms.keys()
    assert all(0 < weight < 1 for weight in (*request.terms.values(), *request.names.values()))


@pytest.mark.parametrize(
    "query",
    [
        "a." * 40_000,
        "/" * 80_000,
        "x" * 80_000,
        "`" * 80_000,
        '"' * 40_000 + "'" * 40_000,
        "```\n" * 20_000,
        "<!--" * 20_000,
        "Error: " * 10_000,
        "at a (" * 10_000,
        "a/b.c:1 " * 10_000,
        "- [ ] x\n" * 10_000,
        "add add add " * 8_000,
        " 1.1 " * 20_000,
        "word 1.0\n" * 10_000,
        "字" * 80_000,
        "\n" * 80_000,
        f"at {'a.' * 290}\n" * 100,
        f"{'/' * 590}\n" * 100,
    ],
)
def test_a_hostile_request_is_understood_in_time(query: str) -> None:
    started = time.process_time()
    read_request(query)
    assert time.process_time() - started < 2


TOKENS = st.sampled_from(
    [
        "total_price",
        "Cart.add",
        "shop/cart.py",
        'File "a.py", line 3, in f',
        "`x`",
        "```",
        "\n",
        "错误",
        "at f (",
        "::",
        "é",
    ]
)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(TOKENS | st.text(max_size=12), max_size=20), st.lists(st.text(max_size=12), max_size=3)
)
def test_any_request_ranks_every_file_once(
    shop: ProjectIndex, query: list[str], touched: list[str]
) -> None:
    found = rank_files(shop, MapRequest(query=" ".join(query), touched=tuple(touched)))
    assert sorted(one.path for one in found) == sorted(shop.entries)
    assert rank_files(shop, MapRequest(query=" ".join(query), touched=tuple(touched))) == found
    for one in found:
        assert sorted(one.definitions, key=repr) == sorted(
            shop.entries[one.path].parsed.definitions, key=repr
        )


def test_a_generated_file_comes_behind(tmp_path: Path) -> None:
    text = "def parse_query(text):\n    return text\n"
    made = f"# Code generated by a tool. DO NOT EDIT.\n{text}"
    index = holding(tmp_path, {"made.py": made, "z.py": text})
    found = rank_files(index, MapRequest(query="parse_query"))
    assert [one.path for one in found] == ["z.py", "made.py"]


@pytest.mark.parametrize(
    ("path", "role"),
    [
        ("src/app/main.py", "source"),
        ("flask/testing.py", "source"),
        ("lib/latest.js", "source"),
        ("src/contest/rules.go", "source"),
        ("packages/core/index.ts", "source"),
        ("django/test/client.py", "helper"),
        ("tests/unit/test_x.py", "test"),
        ("pkg/store_test.go", "test"),
        ("src/x.spec.ts", "test"),
        ("app/src/test/java/AppTest.java", "test"),
        ("Src/Json.Tests/Issue1.cs", "test"),
        ("spec/models/user_spec.rb", "test"),
        ("testing/deprecated_test.py", "test"),
        ("docs/conf.py", "document"),
        ("CHANGELOG.md", "document"),
        ("README", "document"),
        ("examples/hello/main.go", "example"),
        ("vendor/github.com/x/y.go", "vendored"),
        ("python/packages/core/src/core/agent.py", "source"),
        ("src/IntegrationTests.Net4/Nested.cs", "test"),
        ("packages/agent/test/utils.ts", "test"),
        ("src/MapperSamples/Program.cs", "example"),
        ("crates/globset/benches/bench.rs", "example"),
        ("website/app.py", "source"),
        ("src/models.generated.ts", "generated"),
        ("api/v1/service.pb.go", "generated"),
        ("dist/bundle.min.js", "generated"),
        ("package-lock.json", "data"),
    ],
)
def test_the_role_of_a_file_by_its_path(path: str, role: str) -> None:
    assert role_of_path(path) == role


def test_a_package_of_packages_is_somebody_elses(tmp_path: Path) -> None:
    assert is_copied("shop/packages/http/util.py", {"shop/packages/__init__.py"})
    assert not is_copied("shop/packages/http/util.py", {"shop/__init__.py"})
    assert role_of_path("shop/packages/http/util.py") == "source"
    paths = ("shop/packages/__init__.py", "shop/packages/http/util.py", "shop/util.py")
    known = lookup_of(holding(tmp_path, dict.fromkeys(paths, "def get(): pass\n")))
    assert [ROLES[role] for role in known.roles] == ["vendored", "vendored", "source"]
