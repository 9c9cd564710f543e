"""Starts Streamlit with this page: `python -m ui --host 127.0.0.1 --port 8501`. It ends with a signal."""

from __future__ import annotations

import argparse
from pathlib import Path

from streamlit.web import bootstrap

FOLDER = Path(__file__).parent
FRAME = FOLDER / "frame.py"


def main() -> None:
    flags = argparse.ArgumentParser(prog="python -m ui")
    flags.add_argument("--host", default="127.0.0.1")
    flags.add_argument("--port", type=int, default=8501)
    flags.add_argument("--upload-mb", type=int, default=512)
    told = flags.parse_args()
    options = {
        "server_address": told.host,
        "server_port": told.port,
        "server_headless": True,
        "server_maxUploadSize": told.upload_mb,
        "server_fileWatcherType": "none",
        "server_enableCORS": False,  # ui.web does both, more strictly
        "server_enableXsrfProtection": False,
        "browser_gatherUsageStats": False,
        "client_toolbarMode": "minimal",
        "client_showErrorDetails": "none",
        "global_developmentMode": False,
        "theme_base": str(FOLDER / "theme.toml"),
    }
    bootstrap.load_config_options(options)
    bootstrap.run_asgi_app(str(FRAME), "ui.web:app", [], options)


if __name__ == "__main__":
    main()
