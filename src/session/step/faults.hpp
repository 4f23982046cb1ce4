// What went wrong in a session, and who knows of it.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "gradwire/error.hpp"

namespace gradwire::session {

class Faults {
 public:
  /// The session is over; the first reason stays.
  void fail(const Error& error) {
    if (!failure_) {
      failure_ = error;
    }
  }
  [[nodiscard]] bool failed() const noexcept { return failure_.has_value(); }
  /// The failure itself the first time, then Error(aborted) that quotes it.
  void throw_if_failed() {
    if (failure_) {
      if (!std::exchange(reported_, true)) {
        throw Error(*failure_);
      }
      throw Error(ErrorCode::aborted, std::string("the session gave up earlier: ") + failure_->what(),
                  failure_->cause());
    }
  }
  /// Whoever communicates stops here. Error: the failure, which nobody has been told of by that.
  void stop_if_failed() const {
    if (failure_) {
      throw Error(*failure_);
    }
  }
  /// The caller knows of the failure.
  void reported() noexcept { reported_ = true; }

  /// The first misuse of this rank counts until a step ends.
  void misused(const Error& error) {
    if (!misuse_) {
      misuse_ = error;
    }
  }
  [[nodiscard]] bool any() const noexcept { return failure_ || misuse_; }
  void forgive() noexcept { misuse_.reset(); }
  /// Why other ranks must be told that this one is gone, if they must.
  [[nodiscard]] std::optional<Error> why_gone(bool mid_step) const {
    if (failure_) {
      return std::nullopt;  // they know
    }
    if (misuse_) {
      return misuse_;
    }
    if (mid_step) {
      return Error(ErrorCode::aborted, "session destroyed in the middle of a step");
    }
    return std::nullopt;
  }

 private:
  std::optional<Error> failure_;
  bool reported_ = false;
  std::optional<Error> misuse_;
};

}  // namespace gradwire::session
