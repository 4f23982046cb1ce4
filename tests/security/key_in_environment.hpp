// Shared by the tests of jobs with a key: the key, and tensors that can be found again in what was sent.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "hex_bytes.hpp"
#include "security/key_file.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::test {

/// A file with the published key. GRADWIRE_KEY names it as long as this object lives.
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

/// Returns values whose bytes are random, so that nothing else has 16 of them in a row.
inline std::vector<float> marked(int rank, std::uint64_t count, unsigned salt = 0) {
  std::mt19937 random(1000 * salt + static_cast<unsigned>(rank));
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) {
    value = normal(random);
  }
  return values;
}

}  // namespace gradwire::test
