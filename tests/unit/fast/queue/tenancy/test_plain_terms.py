"""The terms of regions for jobs without data follow what is booked there."""

from tests.support.build import cluster, fleet
from topmast.fast.queue.tenancy.ledger import Ledger
from topmast.fast.queue.tenancy.tenancy import Tenancy
from topmast.model.plan import RegionTerms


def _tenancy() -> Tenancy:
    tenancy = Tenancy(None, None)
    tenancy.configure(fleet(cluster("west-1"), cluster("east-1", hosts=4)))
    return tenancy


def test_a_booking_changes_the_terms_of_its_region_alone() -> None:
    """And not those that were handed out before: a request may still be on its way."""
    tenancy = _tenancy()
    before = tenancy.plain_terms()
    tenancy.ledger.take("default", "east", "H100", 8_000, over_quota=False)
    after = tenancy.plain_terms()
    assert list(before) == list(after) == ["east", "west"]
    assert before["east"] == RegionTerms(balance=0.0)
    assert after["east"] == RegionTerms(balance=0.25)
    assert after["west"] is before["west"]


def test_without_a_booking_the_terms_are_the_same() -> None:
    """Nothing is made anew for the next job."""
    tenancy = _tenancy()
    tenancy.ledger.take("default", "east", "H100", 8_000, over_quota=False)
    assert tenancy.plain_terms() is tenancy.plain_terms()


def test_a_region_that_left_the_fleet_has_no_terms() -> None:
    """Attempts may still end there."""
    tenancy = _tenancy()
    tenancy.ledger.take("default", "west", "H100", 8_000, over_quota=False)
    tenancy.configure(fleet(cluster("east-1")))
    tenancy.ledger.give_back("default", "west", "H100", 8_000, over_quota=False)
    assert list(tenancy.plain_terms()) == ["east"]


def test_other_books_have_terms_of_their_own() -> None:
    """A look at what would be booked leaves the terms of the queue alone."""
    tenancy = _tenancy()
    before = tenancy.plain_terms()
    other = tenancy.by(Ledger(()))
    other.ledger.take("default", "east", "H100", 8_000, over_quota=False)
    assert other.plain_terms()["east"] == RegionTerms(balance=0.25)
    assert tenancy.plain_terms() is before
