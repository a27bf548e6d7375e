"""The PostgreSQL server of the tests of stores is the one of these too."""

from tests.stores.conftest import address as address
from tests.stores.conftest import server as server
