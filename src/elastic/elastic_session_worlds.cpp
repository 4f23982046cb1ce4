// How a session gets from one world to the next: the engine of each, what moves over, and calls that are made again.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/log.hpp"
#include "base/units.hpp"
#include "elastic/elastic_session.hpp"
#include "session/parts/sync_modes/sync_modes.hpp"

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

// What the engine tells the wrapper, and the wrapper adds to the engine's statistics.
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
    elastic_.take_copies_of(elements);
  }
  void add_to(SessionStatistics& statistics) const override { statistics.commit_seconds = elastic_.commit_seconds(); }

 private:
  Elastic& elastic_;
  const Tensors& tensors_;
};

}  // namespace

EngineSettings ElasticSession::engine_settings() const {
  EngineSettings settings = base_;
  settings.undoable = true;
  settings.members = elastic_->members();
  settings.copies_of_rows = 2;
  settings.parts.emplace_back(
      [elastic = elastic_.get()](const PartInputs& inputs) {
        return std::make_unique<ElasticPart>(*elastic, inputs.tensors);
      },
      PartMaker::When::with_session);
  return settings;
}

std::unique_ptr<Engine> ElasticSession::make_engine() {
  std::shared_ptr<Transport> transport = elastic_->connect();
  return std::make_unique<Engine>(elastic_->runner_over(std::move(transport)), engine_settings());
}

// Only once the engine is the session's own: if it is given up before that, the watcher must not outlive its runner.
void ElasticSession::watch_engine() {
  elastic_->watch([runner = engine_->runner.get()] {
    runner->abort(ErrorCode::aborted, "the world changes: a rank has ended, or is silent");
  });
}

exchange::ResidualStore ElasticSession::residuals_of(Engine& before, Engine& engine, const SavedState& held) {
  const bool plain_mean = base_.options.reduction == Reduction::mean && !before.settled_step().is_to_be_weighted();
  const float ratio =
      static_cast<float>(engine.runner->info().world_size) / static_cast<float>(before.runner->info().world_size);
  exchange::ResidualStore residuals;
  const auto add = [&](const SavedState::Residual& residual, double factor = 1) {
    const bool averaged = plain_mean || held.has_anchor(residual.key.tensor);  // changes have no weights
    const bool owner = residual.key.site == codec::EncodeSite::owner;
    residuals.add(residual.key, residual.range.offset, residual.range.values,
                  static_cast<float>(factor) * (averaged && !owner ? ratio : 1.0F));
  };
  // Each rank keeps what it holds: whoever no longer owns the elements of an owner residual adds it to what it sends.
  for (const SavedState::Residual& residual : before.runner->held().save_residuals(*before.plan)) {
    add(residual);
  }
  // What few bits drop is sent the next time, and would be sent twice; what topk leaves out waits for many of them.
  const auto counts = [&](std::uint32_t tensor, std::uint64_t copied) {
    const plan::Bucket& bucket = before.plan->buckets[before.plan->tensors[tensor].bucket];
    SyncModes::Sent last{sent_, flushed_};
    if (before.modes() != nullptr) {
      last = before.modes()->sent(bucket.id, engine.settled_step().number(), last);
    }
    return copied >= (bucket.codec.k > 0 ? last.all : last.some);
  };
  const bool had_any = before.runner->held().residual_bytes() > 0;
  for (const Elastic::Kept& kept : elastic_->take_kept()) {
    bool any = false, all = true;
    for (const SavedState::Residual& residual : kept.copy.residuals) {
      const std::uint32_t tensor = residual.key.tensor;
      const bool fits = tensor < engine.tensors.size() &&
                        residual.range.end() <= engine.tensors.infos()[tensor].count &&
                        residual.range.end() >= residual.range.offset;
      if (fits && residuals.has({tensor, codec::EncodeSite::local}) && counts(tensor, kept.step.value())) {
        add(residual, engine.settled_step().loss_scale() / kept.copy.loss_scale);
        any = true;
      } else {
        all = false;
      }
    }
    if (any) {
      elastic_->note_kept(kept);
    }
    if (had_any) {
      log(LogLevel::warning,
          "of " + elastic_->name(kept.who) + ", which ended, " +
              (!kept.step ? "there is no copy of residuals: all that it had yet to send is lost"
                          : "residuals as of step " + std::to_string(*kept.step) +
                                (any && all ? " are kept: what it has dropped since is lost"
                                 : any      ? " are kept of some tensors, those of others were sent "
                                              "since: what it has dropped after that is lost"
                                            : " were sent since: what it has dropped after that is lost")));
    }
  }
  if (!residuals.empty()) {
    for (std::uint32_t tensor = 0; tensor < engine.tensors.size(); ++tensor) {
      residuals.mark_moved(tensor);
    }
  }
  return residuals;
}

WorldChange ElasticSession::change_world(const Error& error) {
  throw_if_left();
  try {
    if (!elastic_->await_change(true)) {
      throw_if_left();  // by another thread, meanwhile
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
    engine_->undo(Error(ErrorCode::aborted, "the world changes"));
    std::unique_ptr<Engine> next = make_engine();
    next->take_over(*engine_, [&](const SavedState& held) { return residuals_of(*engine_, *next, held); });
    sent_ = std::max<std::uint64_t>(next->settled_step().number(), 1) - 1;
    flushed_ = 0;
    engine_ = std::move(next);
    watch_engine();
    files.known.reset();  // other ranks have other names for theirs
    const std::optional<Error> failure = teach_newcomers();
    if (!failure) {
      return;
    }
    if (!elastic_->await_change(true)) {
      throw Error(*failure);
    }
  }
}

void ElasticSession::tell_of(const WorldChange& change) const {
  const bool none_kept = !elastic_->replicates() && engine_->runner->held().residual_bytes() > 0;
  log_change(change, engine_->settled_step().number(),
             none_kept ? "; what the lost had yet to send is lost: see [elastic] replicate" : "");
  if (callback_) {
    const auto callback = callback_;  // it may set another
    callback(change);
  }
}

void ElasticSession::call_in_worlds(const std::function<bool()>& check, const std::function<void()>& call,
                                    const std::function<void()>& deliver) {
  if (engine_->tables.in_use()) {  // this call is made again where a rank ends, and does not say so
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
      engine_->settle();
      if (elastic_->commit()) {
        deliver();
        return;
      }
      failure = Error(ErrorCode::aborted, "the world changes");
    } catch (const Error& error) {
      if (!may_be_peer_failure(error.code())) {
        leave(error);
      }
      failure = error;
    }
    tell_of(change_world(*failure));
  }
}

}  // namespace gradwire::session
