#include "elastic/elastic_session.hpp"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <utility>

#include "base/log.hpp"
#include "base/timeout.hpp"
#include "base/units.hpp"
#include "session/host/bucket_runner.hpp"
#include "session/logging.hpp"
#include "session/parts/sync_modes/sync_modes.hpp"

namespace gradwire {
namespace session {
namespace {

// `residuals`: what is to be said of those that ended.
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

// What the session over Processes adds to its engine's statistics.
class CommitSeconds final : public Part {
 public:
  explicit CommitSeconds(const Elastic& elastic) : elastic_(elastic) {}
  [[nodiscard]] std::string_view name() const noexcept override { return "commit"; }
  [[nodiscard]] bool has_name_compared() const noexcept override { return false; }
  void add_to(SessionStatistics& statistics) const override { statistics.commit_seconds = elastic_.commit_seconds(); }

 private:
  const Elastic& elastic_;
};

}  // namespace

ElasticSession::ElasticSession(std::unique_ptr<Elastic> elastic, EngineSettings base)
    : State(nullptr), base_(std::move(base)), elastic_(std::move(elastic)) {
  if (!elastic_->waits()) {
    engine_ = make_engine();
    return;
  }
  auto places = make_inproc_world(elastic_->processes() + 1);  // its own place alone is taken: nothing communicates
  auto own = std::move(places.back());
  engine_ = std::make_unique<Engine>(elastic_->runner_over(std::move(own)), engine_settings());
}

ElasticSession::~ElasticSession() { end_among_others(engine_->end()); }

// A process that ends with status 0 says that its steps count.
void ElasticSession::end_among_others(const std::optional<Error>& why) const noexcept {
  if (why) {
    return elastic_->deny_success(*why);
  }
  if (left_ || elastic_->waits() || engine_->step.number() == 0) {
    return;
  }
  if (std::uncaught_exceptions() > 0) {
    return elastic_->deny_success(Error(ErrorCode::aborted, "an exception has ended the session between two steps"));
  }
  try {
    elastic_->confirm();
  } catch (const Error& error) {
    log(LogLevel::error, std::string("whether the last step counts is not known: ") + error.what());
    elastic_->deny_success(error);
  }
}

EngineSettings ElasticSession::engine_settings() const {
  EngineSettings settings = base_;
  settings.undoable = true;
  settings.members = elastic_->members();
  settings.copies_of_rows = 2;
  Elastic* elastic = elastic_.get();
  const auto note_tensors = [elastic](const PartInputs& inputs) -> std::unique_ptr<Part> {
    std::uint64_t elements = 0;
    for (const TensorInfo& tensor : inputs.tensors.infos()) {
      elements += tensor.count;
    }
    elastic->take_copies_of(elements);
    return nullptr;
  };
  settings.parts.emplace_back(note_tensors);
  settings.parts.emplace_back([elastic](const PartInputs&) { return std::make_unique<CommitSeconds>(*elastic); },
                              PartMaker::When::with_session);
  return settings;
}

std::unique_ptr<Engine> ElasticSession::make_engine() {
  std::shared_ptr<Transport> transport = elastic_->connect();
  auto engine = std::make_unique<Engine>(elastic_->runner_over(std::move(transport)), engine_settings());
  elastic_->watch([runner = engine->runner.get()] {
    runner->abort(ErrorCode::aborted, "the world changes: a rank has ended, or is silent");
  });
  return engine;
}

exchange::ResidualStore ElasticSession::residuals_of(Engine& before, Engine& engine, const SavedState& held) {
  const bool plain_mean = base_.options.reduction == Reduction::mean && !before.step.is_to_be_weighted();
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
      last = before.modes()->sent(bucket.id, engine.step.number(), last);
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
        add(residual, engine.step.loss_scale() / kept.copy.loss_scale);
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

// Not to be mistaken for a plain session from here on: every call throws.
void ElasticSession::leave(const Error& error) {
  left_ = true;
  engine_->give_up(error, true);
  engine_->runner->abort(error.code(), error.what());
  elastic_->deny_success(error);
  elastic_->end();
  throw Error(error);
}

void ElasticSession::abort(const std::string& why) noexcept {
  left_ = true;
  engine_->runner->abort(ErrorCode::aborted, why);
  try {
    elastic_->end();  // the others go on
    elastic_->deny_success(Error(ErrorCode::aborted, why));
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): the transport has it
  }
  engine_->abort(why);
}

void ElasticSession::confirm() {
  if (elastic_->waits()) {
    return;
  }
  engine_->checked([&] {
    throw_if_left();
    const std::lock_guard lock(engine_->progress.state);
    if (engine_->step.in_step()) {
      throw Error(ErrorCode::invalid_argument,
                  "confirm: a step is under way; call it before the first ready() or after finish()");
    }
  });
  try {
    elastic_->confirm();
  } catch (const Error& error) {
    leave(error);
  }
}

// The others have gone on without it: none of them makes another world with it.
void ElasticSession::throw_if_left() {
  if (left_) {
    const std::lock_guard lock(engine_->progress.state);
    engine_->step.faults.throw_if_failed();
    throw Error(ErrorCode::aborted, "the session gave up earlier");
  }
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
    sent_ = std::max<std::uint64_t>(next->step.number(), 1) - 1;
    flushed_ = 0;
    engine_ = std::move(next);
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
  log_change(change, engine_->step.number(),
             none_kept ? "; what the lost had yet to send is lost: see [elastic] replicate" : "");
  if (callback_) {
    const auto callback = callback_;  // it may set another
    callback(change);
  }
}

void ElasticSession::on_world_change(std::function<void(const WorldChange&)> callback) {
  callback_ = std::move(callback);
  if (callback_ && elastic_->has_to_tell()) {  // ranks ended before the first world was made
    tell_of(elastic_->take_change());
  }
}

Ticket ElasticSession::ready(TensorId id, const View* gradient, bool zero) {
  return engine_->checked([&] {
    require_rank("ready");
    return engine_->ready(id, gradient, zero);
  });
}

// Until all members of the world hold all that this step delivers, nothing of it counts.
void ElasticSession::commit_residuals() {
  Engine& engine = *engine_;
  const std::lock_guard lock(engine.progress.wire);
  const StepOutcome& outcome = engine.step.outcome();
  if (outcome.skipped && engine.modes() != nullptr && engine.modes()->has_uncounted()) {
    return;  // late gradients may be on their way, and nothing else has changed
  }
  engine.runner->undo()->commit();
  const std::uint64_t number = engine.step.number();
  if (!outcome.skipped) {
    sent_ = number;
    flushed_ = engine.step.info().flush ? sent_ : flushed_;
  }
  if (elastic_->replicates_after(number)) {
    try {
      elastic_->replicate(number, {engine.step.loss_scale(), engine.runner->held().save_residuals(*engine.plan)});
    } catch (const std::exception& error) {  // the step counts all the same
      log(LogLevel::warning, std::string("residuals were not copied to another rank: ") + error.what());
    }
  }
}

StepOutcome ElasticSession::finish() {
  const std::uint64_t number = engine_->step.number();
  std::optional<Error> failure;
  try {
    const Engine::Finishing finishing = engine_->prepare();
    engine_->settle();
    if (!elastic_->commit()) {
      throw Error(ErrorCode::aborted, "finish: the world changes");
    }
    commit_residuals();
    return engine_->commit(finishing);
  } catch (const Error& error) {
    if (!may_be_peer_failure(error.code())) {
      leave(error);
    }
    failure = error;
  }
  if (engine_->step.number() != number) {
    return engine_->last_outcome;  // it was delivered; the next step finds that the world is over, on all ranks
  }
  const WorldChange change = change_world(*failure);
  StepOutcome outcome;
  outcome.step = number;
  outcome.world_changed = outcome.repeat = true;
  tell_of(change);
  return outcome;
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

void ElasticSession::broadcast(std::span<const View> values, int root) {
  if (waits("broadcast")) {
    return;
  }
  const std::optional<Processes::Id> who = elastic_->id_of(root);
  std::optional<int> now;
  const auto find_root = [&] {
    now = who ? elastic_->rank_of(*who) : root;
    if (!now) {
      throw Error(ErrorCode::invalid_argument, "broadcast: rank " + std::to_string(root) +
                                                   ", the root, has ended; broadcast from a rank that is left");
    }
    return true;
  };
  call_in_worlds(find_root, [&] { engine_->broadcast(values, *now); });
}

void ElasticSession::reserve() {
  call_in_worlds([] { return true; }, [&] { engine_->checked([&] { engine_->reserve(); }); });
}

void ElasticSession::sync_parameters() {
  // A newcomer has made it with the others in share(), and does not know at which place of its program they were.
  const SyncModes* modes = engine_->modes();
  const bool nothing = elastic_->expects_others() && (modes == nullptr || !modes->have_moved());
  if (elastic_->waits()) {
    return;
  }
  if (nothing) {
    engine_->checked([&] { engine_->require_between_steps("sync_parameters"); });
    return;
  }
  synchronise();
}

void ElasticSession::synchronise() {
  call_in_worlds([&] { return syncs_ = true; }, [&] { engine_->checked([&] { engine_->sync_parameters(); }); },
                 [&] {
                   engine_->count_what_travelled();
                   syncs_ = false;
                 });
}

void ElasticSession::reduce_late_gradients(const char* call, std::optional<double> coming_loss_scale) {
  const auto are_left = [&] {  // none where newcomers have come meanwhile: they know of no such call
    if (engine_->modes() == nullptr || !engine_->modes()->has_uncounted()) {
      return false;
    }
    engine_->progress.require_communication(call);
    const std::lock_guard lock(engine_->progress.state);
    engine_->step.require_between(call);
    return true;
  };
  const auto reduce = [&] {
    coming_loss_scale_ = coming_loss_scale;
    engine_->checked([&] {
      engine_->travel_between_steps(call, [&](std::uint64_t /*now*/) {
        engine_->modes()->release_all();
        return true;
      });
    });
  };
  if (are_left()) {
    call_in_worlds(are_left, reduce, [&] { engine_->count_what_travelled(); });
    coming_loss_scale_.reset();
  }
}

bool ElasticSession::pull(std::uint32_t table, std::span<const std::uint64_t> ids, std::span<float> rows) {
  engine_->checked([&] { require_rank("pull"); });
  engine_->check_pull(table, ids, rows);
  std::optional<Error> failure;
  try {
    engine_->checked([&] { engine_->pull(table, ids, rows); });
    return true;
  } catch (const Error& error) {
    if (!may_be_peer_failure(error.code())) {
      leave(error);
    }
    failure = error;
  }
  tell_of(change_world(*failure));
  return false;
}

std::string ElasticSession::explain() {
  std::uint64_t residuals = 0;
  if (const std::unique_lock wire(engine_->progress.wire, std::try_to_lock); wire.owns_lock()) {
    residuals = engine_->runner->held().residual_bytes();
  }
  return engine_->explain(elastic_->explain(residuals));
}

}  // namespace session

namespace {

std::unique_ptr<session::ElasticSession> make_state(std::shared_ptr<Processes> processes, session::MakeRunner make,
                                                    Policy policy, const SessionOptions& given) {
  session::bind_log();
  const SessionOptions options = with_checked_timeout(given, "Session");
  if (processes == nullptr) {
    throw Error(ErrorCode::invalid_argument, "Session: processes is null");
  }
  if (!processes->claim()) {
    throw Error(ErrorCode::invalid_argument,
                "Session: these processes serve, or served, another session; make new ones, "
                "on every rank");
  }
  const Policy::Elastic settings = policy.elastic.value_or(Policy::Elastic{});
  auto elastic = std::make_unique<session::Elastic>(std::move(processes), std::move(make), settings, options.timeout);
  return std::make_unique<session::ElasticSession>(
      std::move(elastic),
      session::EngineSettings{.policy = std::move(policy), .options = options, .parts = session::standard_parts()});
}

}  // namespace

// Like the other constructor. NOLINTNEXTLINE(performance-unnecessary-value-param)
Session::Session(std::shared_ptr<Processes> processes, Policy policy, SessionOptions options)
    : Session(std::unique_ptr<State>(make_state(
          std::move(processes),
          [options = with_checked_timeout(options, "Session")](std::shared_ptr<Transport> transport,
                                                               std::uint32_t epoch) {
            return std::make_unique<session::BucketRunner>(std::move(transport), options, epoch);
          },
          std::move(policy), options))) {}

// NOLINTBEGIN(performance-unnecessary-value-param): as the public constructors
Session session::make_session(std::shared_ptr<Processes> processes, MakeRunner make, Policy policy,
                              SessionOptions options) {
  return Access::make(make_state(std::move(processes), std::move(make), std::move(policy), options));
}
// NOLINTEND(performance-unnecessary-value-param)

}  // namespace gradwire
