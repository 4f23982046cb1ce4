#include "elastic/kept_copies.hpp"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

namespace gradwire::session {
namespace {

constexpr std::size_t kPieceBytes = 256 << 10;

}  // namespace

std::size_t put_piece(wire::Bytes& message, const Copy& copy, std::size_t at) {
  const std::size_t size = std::min(kPieceBytes, copy.bytes.size() - at);
  wire::put_number(message, copy.epoch);
  wire::put_number(message, copy.step);
  wire::put_number(message, static_cast<std::uint64_t>(copy.bytes.size()));
  wire::put_number(message, static_cast<std::uint64_t>(at));
  wire::put(message, copy.bytes.data() + at, size);
  return size;
}

// Memory is only taken for bytes that have arrived, not for those that are announced.
void KeptCopies::hear(Id from, wire::ByteReader piece) {
  const auto epoch = piece.number<std::uint32_t>();
  const auto step = piece.number<std::uint64_t>();
  const auto total = piece.number<std::uint64_t>();
  const auto before = piece.number<std::uint64_t>();
  const auto bytes = piece.take(piece.left());
  const MutexLock lock(mutex_);
  if (epoch < from_epoch_ || largest_ == 0) {
    incoming_.erase(from);
    return;
  }
  if (total > largest_) {
    incoming_.erase(from);
    piece.fail("a copy of " + std::to_string(total) + " bytes is more than residuals can be");
  }
  try {
    Copy& copy = incoming_[from];
    if (before == 0) {
      copy = {.epoch = epoch, .step = step, .bytes = {}};
    }
    const bool follows = copy.epoch == epoch && copy.step == step && copy.bytes.size() == before;
    if (!follows || bytes.size() > total - std::min(before, total)) {
      incoming_.erase(from);  // earlier pieces may have been lost
      return;
    }
    if (const std::size_t size = copy.bytes.size() + bytes.size(); size > copy.bytes.capacity()) {
      copy.bytes.reserve(std::min<std::uint64_t>(total, 2 * size));  // no more than the copy needs in the end
    }
    copy.bytes.insert(copy.bytes.end(), bytes.begin(), bytes.end());
    if (copy.bytes.size() == total) {
      whole_[from] = std::move(copy);
      incoming_.erase(from);
    }
  } catch (const std::exception&) {  // no memory
    incoming_.erase(from);
  }
}

std::optional<Copy> KeptCopies::take(Id of, std::uint32_t epoch) {
  const MutexLock lock(mutex_);
  const auto found = whole_.find(of);
  if (found == whole_.end() || found->second.epoch != epoch) {
    return std::nullopt;
  }
  Copy copy = std::move(found->second);
  whole_.erase(found);
  return copy;
}

void KeptCopies::forget_before(std::uint32_t epoch) {
  const MutexLock lock(mutex_);
  from_epoch_ = std::max(from_epoch_, epoch);
  const auto is_old = [&](const auto& copy) REQUIRES(mutex_) { return copy.second.epoch < from_epoch_; };
  std::erase_if(whole_, is_old);
  std::erase_if(incoming_, is_old);
}

}  // namespace gradwire::session
