// The placement of a benchmark's buffers. It changes the result: if the receive buffer begins a few bytes after the
// send buffer modulo 4096, loads of one wait for stores to the other (4 KiB aliasing), and a sum of two streams into a
// third takes up to three times as long. Two consecutive large heap blocks are placed like that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace gradwire::bench {

enum class Placement : std::uint8_t {
  aligned,   // both at the start of a page, as in OSU's benchmarks
  in_place,  // one buffer, at the start of a page
  heap,      // two consecutive blocks from malloc
};

/// Returns "aligned", "in-place" or "heap".
[[nodiscard]] std::string_view to_string(Placement placement) noexcept;
/// Throws std::invalid_argument for another text.
[[nodiscard]] Placement parse_placement(std::string_view text);
/// Returns "page-aligned buffers", "in place, page-aligned" or "heap blocks", for the head of a table.
[[nodiscard]] std::string describe(Placement placement);

/// A send and a receive buffer of `bytes` each, all pages touched; in place both are one buffer.
class Buffers {
 public:
  Buffers(Placement placement, std::uint64_t bytes);
  ~Buffers();
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  [[nodiscard]] bool in_place() const noexcept { return send_ == receive_; }
  [[nodiscard]] float* send() const noexcept { return static_cast<float*>(send_); }
  [[nodiscard]] float* receive() const noexcept { return static_cast<float*>(receive_); }

 private:
  void* send_ = nullptr;
  void* receive_ = nullptr;
};

}  // namespace gradwire::bench
