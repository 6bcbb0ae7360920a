// Which sanitizer looks on: some keep what was freed, take addresses by the terabyte, or slow bulk copies too
// far.
#pragma once

namespace moeloom::testing {

#if defined(__has_feature)
#define MOELOOM_HAS_FEATURE(name) __has_feature(name)
#else
#define MOELOOM_HAS_FEATURE(name) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || \
    MOELOOM_HAS_FEATURE(address_sanitizer) || MOELOOM_HAS_FEATURE(thread_sanitizer)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

#undef MOELOOM_HAS_FEATURE

}  // namespace moeloom::testing
