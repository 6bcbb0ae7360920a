# A room's tests under asan's sanitizers, within three minutes on two processors without ccache: a room that
# the commit's name draws.
# What these rooms have below them, and so most of the time, is the same for all.

check_ci() {
  local rooms=(base job io report) room
  room=${rooms[16#$(git rev-parse --short=6 HEAD | cut -c1-6) % ${#rooms[@]}]}
  build ci "tests_$room" "${sanitized[@]}" || { echo "ci: sanitizers NOT BUILT for $room" && return 1; }
  asan_options
  # Tests of the sources' texts have nothing for a sanitizer to see.
  reported > /dev/null
  if "$builds/ci/tests_$room" --gtest_brief=1 --gtest_filter="-Includes*:Layering*:PublicHeaders*" && ! reported; then
    echo "ci: sanitizers passed in $room"
  else
    echo "ci: sanitizers FAILED in $room" && return 1
  fi
}
