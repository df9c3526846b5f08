"""titiler as its documentation shows it: `uvicorn titiler_app:app`."""

from __future__ import annotations

from fastapi import FastAPI
from titiler.core.factory import TilerFactory

app = FastAPI()
app.include_router(TilerFactory().router)
