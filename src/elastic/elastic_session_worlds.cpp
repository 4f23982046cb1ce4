// How a session gets from one world to the next: the engine of each world, the state that moves over, and repeated
// calls.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/log.hpp"
#include "base/units.hpp"
#include "elastic/elastic_session.hpp"
#include "session/parts/sync_modes/sync_modes_part.hpp"

namespace gradwire::session {
namespace {

// `residuals` says what becomes of the residuals of ranks that ended.
void log_change(const WorldChange& change, std::uint64_t step, const char* residuals) {
  const auto listed = [](const char* before, const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& name : names) {
      text += (text.empty() ? before : ", ") + name;
    }
    return text;
  };
  log(change.rank == 0 ? LogLevel::warning : LogLevel::info,
      std::to_string(change.old_world_size) + " ranks have become " + std::to_string(change.world_size) +
          listed(": without ", change.lost_names) + listed("; new: ", change.joined_names) + "; step " +
          std::to_string(step) + " begins anew, " + format_number(std::round(1e3 * change.seconds)) +
          " ms after that was noticed" + (change.lost.empty() ? "" : residuals));
}

// Tells Elastic what the engine agreed on, and adds Elastic's figures to the engine's statistics.
class ElasticPart final : public Part {
 public:
  ElasticPart(Elastic& elastic, const Tensors& tensors) : elastic_(elastic), tensors_(tensors) {}
  [[nodiscard]] std::string_view name() const noexcept override { return "elastic"; }
  [[nodiscard]] bool has_name_compared() const noexcept override { return false; }
  void agreed(const Agreement& /*agreement*/) override {
    std::uint64_t elements = 0;
    for (const TensorInfo& tensor : tensors_.infos()) {
      elements += tensor.count;
    }
    elastic_.copies().bound(elements);
  }
  void add_to(SessionStatistics& statistics) const override { statistics.commit_seconds = elastic_.commit_seconds(); }

 private:
  Elastic& elastic_;
  const Tensors& tensors_;
};

}  // namespace

std::unique_ptr<Engine> ElasticSession::make_engine(std::shared_ptr<Transport> transport) {
  EngineSettings settings = base_;
  settings.undoable = true;
  settings.members = elastic_->members();
  settings.copies_of_rows = 2;
  settings.parts.emplace_back(
      [elastic = elastic_.get()](const PartInputs& inputs) {
        return std::make_unique<ElasticPart>(*elastic, inputs.tensors);
      },
      PartMaker::When::with_session);
  return std::make_unique<Engine>(elastic_->runner_over(std::move(transport)), std::move(settings));
}

// Watches only once the engine is the session's own: if the engine is given up before, the watcher must not outlive its
// runner.
void ElasticSession::watch_engine() {
  elastic_->watch([runner = engine_->runner.get()] {
    runner->abort(Error(ErrorCode::aborted, "the world changes: a rank has ended, or is silent", ErrorCause::world));
  });
}

WorldChange ElasticSession::change_world(const Error& error) {
  throw_if_left();
  try {
    if (!elastic_->await_change()) {
      throw_if_left();  // another thread may have left the job meanwhile
      throw Error(error);
    }
    enter_world();
  } catch (const Error& failure) {
    leave(failure);
  }
  return elastic_->take_change();
}

void ElasticSession::enter_world() {
  for (;;) {
    engine_->undo(Error(ErrorCode::aborted, "the world changes", ErrorCause::world));
    std::unique_ptr<Engine> next = make_engine(elastic_->connect());
    next->take_over(*engine_, [&](const SavedState& held) { return residuals_.of(*engine_, *next, held); });
    residuals_.enter(next->settled_step().number());
    engine_ = std::move(next);
    watch_engine();
    const std::optional<Error> failure = newcomers_.teach();
    if (!failure) {
      return;
    }
    if (!elastic_->await_change()) {
      throw Error(*failure);
    }
  }
}

void ElasticSession::report_change(const WorldChange& change) const {
  const bool residuals_lost = !elastic_->copies().in_use() && engine_->runner->held().residual_bytes() > 0;
  log_change(change, engine_->settled_step().number(),
             residuals_lost ? "; what the lost had yet to send is lost: see [elastic] replicate" : "");
  if (callback_) {
    const auto callback = callback_;  // the callback may set another one
    callback(change);
  }
}

void ElasticSession::call_in_worlds(const std::function<bool()>& check, const std::function<void()>& call,
                                    const std::function<void()>& deliver) {
  if (engine_->parts.in_step()) {  // this call is repeated if a rank ends, and its caller does not learn of that
    throw Error(
        ErrorCode::invalid_argument,
        "between pull() or push() and finish() of a step ranks communicate in that step alone; call broadcast(), "
        "sync_parameters(), reserve(), save(), checkpoint() and set_loss_scale() before pull() and push(), or "
        "after finish()");
  }
  while (check()) {
    std::optional<Error> failure;
    try {
      call();
      engine_->device.settle();
      if (elastic_->commit()) {
        deliver();
        return;
      }
      failure = Error(ErrorCode::aborted, "the world changes", ErrorCause::world);
    } catch (const Error& error) {
      leave_unless_world_ended(error);
      failure = error;
    }
    report_change(change_world(*failure));
  }
}

}  // namespace gradwire::session
