# A room's tests under asan's sanitizers, within three minutes on two processors without ccache: a room that
# the commit's name draws.
# What these rooms have below them, and so most of the time, is the same for all.

check_ci() {
  local rooms=(base job io report) room status
  room=${rooms[16#$(git rev-parse --short=6 HEAD | cut -c1-6) % ${#rooms[@]}]}
  build ci "tests_$room" "${sanitized[@]}" || { echo "ci: sanitizers NOT BUILT for $room" && return 1; }
  asan_options || return 1
  # Tests of the sources' texts have nothing for a sanitizer to see.
  reported > /dev/null
  "$builds/ci/tests_$room" --gtest_brief=1 --gtest_filter="-Includes*:Layering*:PublicHeaders*"
  status=$?
  reported && status=1
  if ((status == 0)); then
    echo "ci: sanitizers passed in $room"
  else
    echo "ci: sanitizers FAILED in $room" && return 1
  fi
}
