"""What the shop does in the background: its handlers, and the schedules that it has by its code."""

from migrator import Context, Registry, Scheduler, ScheduleRequest

registry = Registry()


@registry.handler("confirm")
def confirm(*, order: str, customer: str, context: Context) -> dict[str, str]:
    """Send the mail that confirms an order (here: a line of the run's log)."""
    if "@" not in customer:
        raise ValueError("the customer has no address")
    context.log(f"to {customer}: thank you for order {order}")
    return {"order": order, "sent": "yes"}


@registry.handler("newsletter", idempotent=True)
async def newsletter(*, edition: str, readers: int = 0) -> str:
    """Send the newsletter (here: say to whom). A handler may be a coroutine."""
    return f"{edition} to {readers} readers"


def install(scheduler: Scheduler) -> None:
    """Create or change the schedules of the shop: called at every start, it writes only what differs."""
    scheduler.ensure(
        ScheduleRequest(
            name="newsletter",
            handler_name="newsletter",
            cron="0 8 * * 1",
            timezone="Europe/Berlin",
            payload={"edition": "weekly"},
            created_by="shop",
        )
    )


def confirmation(order: str, customer: str) -> ScheduleRequest:
    """Return the job that confirms an order. Its name makes it one job, however often it is asked for."""
    return ScheduleRequest(
        name=f"confirm {order}",
        handler_name="confirm",
        payload={"order": order, "customer": customer},
        max_retries=2,
        created_by="shop",
    )
