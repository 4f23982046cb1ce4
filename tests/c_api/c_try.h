/* For functions that return 0, or the line of the call that failed. */
#ifndef GRADWIRE_TESTS_C_TRY_H
#define GRADWIRE_TESTS_C_TRY_H

#define TRY(call)                \
  do {                           \
    if ((call) != GRADWIRE_OK) { \
      return __LINE__;           \
    }                            \
  } while (0)

/* Does the same for a condition that must hold. */
#define HOLDS(condition) \
  do {                   \
    if (!(condition)) {  \
      return __LINE__;   \
    }                    \
  } while (0)

#endif
