#include "drop_in/frame_memory.hpp"

#include <algorithm>

#include "exchange/stream/dry_run.hpp"
#include "gradwire/error.hpp"

namespace gradwire::drop_in {
namespace {

constexpr std::size_t kMostRuns = 4096;  // beyond it all are asked for again
constexpr std::size_t kOnePiece = std::size_t{1} << 50;

// Notes where the memory of an arena of one slab ends.
class PieceBackend final : public exchange::NullBackend {
 public:
  using NullBackend::NullBackend;

  [[nodiscard]] std::byte* acquire(std::size_t bytes) override {
    std::byte* block = NullBackend::acquire(bytes);
    first_ = first_ == nullptr ? block : first_;
    end_ = std::max(end_, static_cast<std::size_t>(block - first_) + memory::Arena::block_bytes(bytes));
    return block;
  }
  [[nodiscard]] std::size_t end() const noexcept { return end_; }

 private:
  std::byte* first_ = nullptr;  // where the slab begins
  std::size_t end_ = 0;
};

}  // namespace

std::optional<bool> FrameMemory::known(const Run& run) const {
  const auto found = agreed_.find(run);
  return found == agreed_.end() ? std::nullopt : std::optional(found->second);
}

bool FrameMemory::ask(const Run& run, const Play& play, const AllHave& all_have) {
  const std::size_t slabs = arena_.slabs().size();
  const bool mine = reserve(play);
  const bool all = all_have(mine);
  if (mine && !all) {
    arena_.drop_slabs(slabs);  // no work has used them
  }
  if (agreed_.size() >= kMostRuns) {
    agreed_.clear();
  }
  return agreed_[run] = all;
}

// The arena keeps what it has reserved, and places the blocks of a run as in the dry run, which began with the same
// blocks: slabs that are added later lie behind those that the dry run has seen.
bool FrameMemory::reserve(const Play& play) {
  try {
    exchange::reserve_memory_of(arena_, rank_, world_, play);
    return true;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::out_of_memory) {
      throw;
    }
    return false;
  }
}

std::uint64_t FrameMemory::bytes_of(const Play& play) const {
  exchange::NoMemory source;
  memory::Arena arena(source, kOnePiece);
  PieceBackend backend(arena, rank_, world_);
  play(backend);
  return backend.end();
}

}  // namespace gradwire::drop_in
