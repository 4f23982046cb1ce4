// Copies that other ranks want to be kept, as they come in pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "base/mutex.hpp"
#include "gradwire/processes.hpp"
#include "wire/bytes.hpp"

namespace gradwire::session {

/// What another rank wants to be kept: of transaction or step `step`.
struct Copy {
  std::uint32_t epoch = 0;  // in which it was made
  std::uint64_t step = 0;
  wire::Bytes bytes;
};

/// Appends the piece of `copy` that begins `at` so many bytes, and returns how many bytes of the copy are in it.
std::size_t put_piece(wire::Bytes& message, const Copy& copy, std::size_t at);

/// For each sender the latest whole copy, and the one that is on its way. Any thread.
class KeptCopies {
 public:
  using Id = Processes::Id;

  /// Of others, up to this size; none before.
  void take_up_to(std::uint64_t bytes) {
    const MutexLock lock(mutex_);
    largest_ = bytes;
  }
  /// A piece; they come in order. Error(corrupt) for what no put_piece() made.
  void hear(Id from, wire::ByteReader piece);
  /// The latest that `of` sent in `epoch`, whole; none: nothing came.
  [[nodiscard]] std::optional<Copy> take(Id of, std::uint32_t epoch);
  /// The rest of what `from` was sending does not come.
  void lose(Id from) {
    const MutexLock lock(mutex_);
    incoming_.erase(from);
  }
  /// Nobody will take those that were made before `epoch`, nor what of them still comes.
  void forget_before(std::uint32_t epoch);

 private:
  Mutex mutex_;
  std::map<Id, Copy> whole_ GUARDED_BY(mutex_);
  std::map<Id, Copy> incoming_ GUARDED_BY(mutex_);  // so far
  std::uint32_t from_epoch_ GUARDED_BY(mutex_) = 0;
  std::uint64_t largest_ GUARDED_BY(mutex_) = 0;
};

}  // namespace gradwire::session
