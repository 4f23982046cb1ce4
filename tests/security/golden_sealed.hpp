// The golden frames of wire version 3: frames of version 2, sealed by rank 1 of the world of the published key and
// random bytes. tests/golden/README.md describes them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gradwire/error.hpp"
#include "security/sealed_frame.hpp"

namespace gradwire::test {

/// The transport's tag under which the golden frames go: that of the first lane's results in the second call.
inline constexpr std::uint32_t kGoldenTag = (1U << 16U) + 1;

struct GoldenSealed {
  std::string name;  // of the file, without .frame
  security::Cipher cipher = security::Cipher::aes_256_gcm;
  std::vector<std::byte> plain;  // the frame of version 2
  std::vector<std::byte> frame;  // sealed by this build
};

/// Returns the good frames. Those of one cipher have the counters 0, 1, ... in this order.
[[nodiscard]] std::vector<GoldenSealed> good_sealed_frames();

struct BadSealed {
  std::string name;    // begins with the ErrorCode that opening it must give
  std::string reason;  // the message must contain this
  std::vector<std::byte> frame;
};

/// Returns damaged copies of good_sealed_frames().front().
[[nodiscard]] std::vector<BadSealed> bad_sealed_frames();

/// Returns the key by which a rank of the published world seals its frames.
[[nodiscard]] security::Key published_sender_key(security::Cipher cipher, std::uint32_t rank);

}  // namespace gradwire::test
