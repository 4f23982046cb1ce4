#include "bench/support/placement.hpp"

#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>

namespace gradwire::bench {
namespace {

constexpr std::size_t kPage = 4096;

void* take(Placement placement, std::uint64_t bytes) {
  const std::uint64_t pages = (bytes + kPage - 1) / kPage * kPage;
  void* block = placement == Placement::heap ? std::malloc(bytes) : std::aligned_alloc(kPage, pages);
  if (block == nullptr) {
    throw std::bad_alloc();
  }
  std::memset(block, 0, bytes);
  return block;
}

}  // namespace

std::string_view to_string(Placement placement) noexcept {
  switch (placement) {
    case Placement::aligned: return "aligned";
    case Placement::in_place: return "in-place";
    case Placement::heap: return "heap";
  }
  return "unknown";
}

Placement parse_placement(std::string_view text) {
  for (const Placement placement : {Placement::aligned, Placement::in_place, Placement::heap}) {
    if (text == to_string(placement)) {
      return placement;
    }
  }
  throw std::invalid_argument("placement \"" + std::string(text) + "\": write aligned, in-place or heap");
}

std::string describe(Placement placement) {
  switch (placement) {
    case Placement::aligned: return "page-aligned buffers";
    case Placement::in_place: return "in place, page-aligned";
    case Placement::heap: return "heap blocks";
  }
  return "unknown placement";
}

Buffers::Buffers(Placement placement, std::uint64_t bytes)
    : send_(take(placement, bytes)), receive_(placement == Placement::in_place ? send_ : take(placement, bytes)) {}

Buffers::~Buffers() {
  std::free(send_);
  if (receive_ != send_) {
    std::free(receive_);
  }
}

}  // namespace gradwire::bench
