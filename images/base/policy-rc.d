#!/bin/sh
# No service is started while a package is installed into an image.
exit 101
