"""The reference converter's command line, on a GDAL that is older than it wants.

It names the type int8 of GDAL 3.7, which Debian's 3.6 has not; no raster of the cases is of it.
"""

from __future__ import annotations

import sys

from osgeo import gdal

if not hasattr(gdal, "GDT_Int8"):
    gdal.GDT_Int8 = 14

from raquet.cli import main

if __name__ == "__main__":
    sys.exit(main())
