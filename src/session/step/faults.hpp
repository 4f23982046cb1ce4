// Faults holds the errors of a session, and whether its caller has been told of them.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "gradwire/error.hpp"

namespace gradwire::session {

class Faults {
 public:
  /// `only_finish_reports`: the caller's layer may undo a step, so only finish() reports an error that another rank's
  /// end may have caused (EngineSettings::undoable).
  explicit Faults(bool only_finish_reports) : only_finish_reports_(only_finish_reports) {}

  /// Ends the session with `error`; an earlier failure stays.
  void fail(const Error& error) {
    if (!failure_) {
      failure_ = error;
    }
  }
  /// Ends the session with `error`, and for good: from now on every call reports that.
  void end(const Error& error) {
    fail(error);
    only_finish_reports_ = false;
  }
  /// Does the same for an `error` of which the caller has been told, in place of an earlier failure.
  void end_told(const Error& error) {
    failure_ = error;
    reported_ = true;
    only_finish_reports_ = false;
  }
  [[nodiscard]] bool failed() const noexcept { return failure_.has_value(); }
  /// Throws the failure itself the first time, and afterwards an Error(aborted) that quotes it.
  void throw_if_failed() {
    if (failure_) {
      if (!std::exchange(reported_, true)) {
        throw Error(*failure_);
      }
      throw Error(ErrorCode::aborted, std::string("the session gave up earlier: ") + failure_->what(),
                  failure_->cause());
    }
  }
  /// For calls other than finish(): throws the failure, unless only finish() reports it.
  void throw_in_call() {
    if (!left_to_finish()) {
      throw_if_failed();
    }
  }
  /// Whether the step has failed and only finish() reports that.
  [[nodiscard]] bool left_to_finish() const noexcept { return failure_ && leaves_to_finish(*failure_); }
  /// Whether finish() reports `error`, so that the call that caught it returns normally.
  [[nodiscard]] bool leaves_to_finish(const Error& error) const noexcept {
    return only_finish_reports_ && error.cause() == ErrorCause::world;
  }
  /// Throws the failure in the thread that communicates, without counting it as reported to the caller.
  void stop_if_failed() const {
    if (failure_) {
      throw Error(*failure_);
    }
  }
  /// Notes that the caller has been told of the failure.
  void reported() noexcept { reported_ = true; }

  /// Keeps the first misuse by this rank's caller until a step ends.
  void misused(const Error& error) {
    if (!misuse_) {
      misuse_ = error;
    }
  }
  [[nodiscard]] bool any() const noexcept { return failure_ || misuse_; }
  void forgive() noexcept { misuse_.reset(); }
  /// Returns the error to tell the other ranks when this one goes, if they must be told.
  [[nodiscard]] std::optional<Error> why_gone(bool mid_step) const {
    if (failure_) {
      return std::nullopt;  // the other ranks know already
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
  bool only_finish_reports_;
  std::optional<Error> failure_;
  bool reported_ = false;
  std::optional<Error> misuse_;
};

}  // namespace gradwire::session
