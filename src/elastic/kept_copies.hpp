// The copies that this rank keeps for other ranks, which arrive in pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "base/mutex.hpp"
#include "gradwire/processes.hpp"
#include "wire/bytes.hpp"

namespace gradwire::session {

/// A copy that another rank wants to be kept, of its state after step or transaction `step`.
struct Copy {
  std::uint32_t epoch = 0;  // epoch in which it was made
  std::uint64_t step = 0;
  wire::Bytes bytes;
};

/// Appends the piece of `copy` that begins at byte `at`. Returns the number of the copy's bytes in that piece.
std::size_t put_piece(wire::Bytes& message, const Copy& copy, std::size_t at);

/// Holds for each sender the latest complete copy, and the one that is on its way. Any thread may use it.
class KeptCopies {
 public:
  using Id = Processes::Id;

  /// Accepts copies of up to this size from now on; before, none.
  void take_up_to(std::uint64_t bytes) {
    const MutexLock lock(mutex_);
    largest_ = bytes;
  }
  /// Takes a piece; pieces come in order. Error(corrupt) for bytes that put_piece() did not make.
  void hear(Id from, wire::ByteReader piece);
  /// Returns the latest complete copy that `of` sent in `epoch`, if there is one.
  [[nodiscard]] std::optional<Copy> take(Id of, std::uint32_t epoch);
  /// Notes that the rest of the copy that `from` was sending does not come.
  void lose(Id from) {
    const MutexLock lock(mutex_);
    incoming_.erase(from);
  }
  /// Drops the copies that were made before `epoch`, and their pieces that still come, since nobody will take them.
  void forget_before(std::uint32_t epoch);

 private:
  Mutex mutex_;
  std::map<Id, Copy> whole_ GUARDED_BY(mutex_);
  std::map<Id, Copy> incoming_ GUARDED_BY(mutex_);  // the pieces that have arrived
  std::uint32_t from_epoch_ GUARDED_BY(mutex_) = 0;
  std::uint64_t largest_ GUARDED_BY(mutex_) = 0;
};

}  // namespace gradwire::session
