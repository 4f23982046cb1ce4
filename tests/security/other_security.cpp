// Stands for a libgradwire_security.so of another version.
#include "security/security_table.hpp"

extern "C" const gradwire::security::SecurityTable* gradwire_security_functions() {
  static constexpr gradwire::security::SecurityTable kTable{.version = 999};
  return &kTable;
}
