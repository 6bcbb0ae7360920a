#!/bin/sh
# The same program by pkg-config alone: pkg_config.sh PREFIX FOLDER
set -e
PKG_CONFIG_PATH=$(dirname "$(find "$1" -name moeloom.pc)") && export PKG_CONFIG_PATH
mkdir -p "$2"
# shellcheck disable=SC2046 # flags are words
mpicxx -std=c++20 "$(dirname "$0")/every_group.cpp" $(pkg-config --cflags --libs moeloom) -o "$2/every_group"
LD_LIBRARY_PATH=$(dirname "$PKG_CONFIG_PATH") "$2/every_group"
