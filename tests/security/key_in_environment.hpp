// A job with a key, for tests.
#pragma once

#include <cstdlib>
#include <string>

#include "hex_bytes.hpp"
#include "security/key_file.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::test {

/// A file with the published key; GRADWIRE_KEY names it while this is there.
class KeyInEnvironment {
 public:
  KeyInEnvironment() {
    security::write_key_file(file(), published_key());
    ::setenv("GRADWIRE_KEY", ("file:" + file()).c_str(), 1);  // NOLINT(concurrency-mt-unsafe): no ranks yet
  }
  ~KeyInEnvironment() { ::unsetenv("GRADWIRE_KEY"); }  // NOLINT(concurrency-mt-unsafe): no ranks any more
  KeyInEnvironment(const KeyInEnvironment&) = delete;
  KeyInEnvironment& operator=(const KeyInEnvironment&) = delete;
  [[nodiscard]] std::string file() const { return folder_.file("job.key"); }

 private:
  ScratchFolder folder_;
};

}  // namespace gradwire::test
