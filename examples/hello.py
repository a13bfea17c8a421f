"""Two modules: the second takes what the first gives."""

from towline import Context, Pipeline, SyncContext, module, result_of


@module
async def greeting(ctx: Context) -> str:
    return "hello"


@module
def shout(ctx: SyncContext, text: str = result_of(greeting)) -> str:
    ctx.log.info("shouting")
    return text.upper()


pipeline = Pipeline("hello", [shout])

if __name__ == "__main__":
    pipeline.main()
