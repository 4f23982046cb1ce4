// The sanitizers of this build, which g++ and clang announce in different ways.
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#define GRADWIRE_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define GRADWIRE_ADDRESS_SANITIZER 1
#endif
#endif
#ifndef GRADWIRE_ADDRESS_SANITIZER
#define GRADWIRE_ADDRESS_SANITIZER 0
#endif

#if defined(__SANITIZE_THREAD__)
#define GRADWIRE_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define GRADWIRE_THREAD_SANITIZER 1
#endif
#endif
#ifndef GRADWIRE_THREAD_SANITIZER
#define GRADWIRE_THREAD_SANITIZER 0
#endif
