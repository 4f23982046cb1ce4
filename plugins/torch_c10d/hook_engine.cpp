#include "plugins/torch_c10d/hook_engine.hpp"

#include <algorithm>
#include <atomic>
#include <new>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "base/current_error.hpp"
#include "base/forked.hpp"
#include "base/mutex.hpp"
#include "drop_in/call_queue.hpp"
#include "plugins/torch_c10d/connect.hpp"
#include "session/calls/session_state.hpp"
#include "session/state/state_file.hpp"

namespace gradwire::torch_c10d {
namespace {

using session::SavedState;

constexpr const char* kFailureKey = "failed";

std::exception_ptr exception_of(const std::string& why) {
  return std::make_exception_ptr(std::runtime_error("gradwire: " + why));
}

// Each session of a hook has keys of its own.
transport::Rendezvous with_prefix(const transport::Rendezvous& store, int generation) {
  const std::string prefix = std::to_string(generation) + "/";
  return {
      .put = [put = store.put, prefix](const std::string& key, const std::string& value) { put(prefix + key, value); },
      .get = [get = store.get, prefix](const std::string& key,
                                       std::chrono::milliseconds limit) { return get(prefix + key, limit); }};
}

void put_failure(const transport::Rendezvous& store, int generation, int rank, const std::string& why) noexcept {
  try {
    with_prefix(store, generation).put(kFailureKey, "rank " + std::to_string(rank) + ": " + why);
  } catch (...) {  // NOLINT(bugprone-empty-catch): the others' timeout ends their wait
  }
}

SavedState parse(const std::string& state, std::size_t index) {
  std::istringstream stream(state);
  return session::read_state(stream, "load_state_dict: state " + std::to_string(index));
}

// Returns the states that this rank continues from: its own if it has one of a world of the same size, else all.
std::vector<SavedState> states_for(int rank, int world_size, std::vector<SavedState> all) {
  const auto fail = [](const std::string& why) {
    throw Error(ErrorCode::mismatch, "load_state_dict: " + why +
                                         "; give it this rank's own state of a job of as many ranks, or a list of the "
                                         "states of all ranks, saved after one step");
  };
  const int saved = all.front().world_size;
  const std::uint64_t step = all.front().step;
  std::ranges::sort(all, {}, &SavedState::rank);
  for (const SavedState& state : all) {
    if (state.world_size != saved || state.step != step) {
      fail("the states are of several jobs or steps: rank " + std::to_string(state.rank) + " of " +
           std::to_string(state.world_size) + " at step " + std::to_string(state.step) + ", and one of " +
           std::to_string(saved) + " ranks at step " + std::to_string(step));
    }
  }
  if (saved == world_size) {
    const auto own = std::ranges::find(all, rank, &SavedState::rank);
    if (own == all.end()) {
      fail("there is no state of rank " + std::to_string(rank) + " of " + std::to_string(world_size));
    }
    std::vector<SavedState> only;
    only.push_back(std::move(*own));
    return only;
  }
  for (int r = 0; r < saved; ++r) {
    if (static_cast<std::size_t>(r) >= all.size() || all[static_cast<std::size_t>(r)].rank != r) {
      fail("of " + std::to_string(saved) + " ranks' states there are " + std::to_string(all.size()) +
           ", and that of rank " + std::to_string(r) + " is not among them");
    }
  }
  if (all.size() != static_cast<std::size_t>(saved)) {
    fail("there are " + std::to_string(all.size()) + " states of " + std::to_string(saved) + " ranks");
  }
  return all;
}

class SessionHook final : public HookEngine {
 public:
  SessionHook(HookOptions options, std::unique_ptr<HookMember> member)
      : options_(std::move(options)), member_(std::move(member)), ids_(options_.parameters.size()) {
    if (!member_->enqueues()) {
      queue_ = std::make_shared<drop_in::CallQueue>();
    }
  }

  ~SessionHook() override {
    if (home_.is_elsewhere()) {  // a forked child has no thread to join
      new (std::nothrow) std::shared_ptr<drop_in::CallQueue>(std::move(queue_));
      new (std::nothrow) std::shared_ptr<Session>(session());
    } else {
      close();
    }
  }

  void post(HookBucket bucket) override {
    const auto mine = std::make_shared<HookBucket>(std::move(bucket));
    in_step_ = true;
    const std::shared_ptr<drop_in::CallQueue> queue = this->queue();
    if (closing_) {
      mine->done(exception_of("the hook is closed"));
    } else if (queue) {
      queue->post([this, mine] { take(std::move(*mine)); });
    } else {
      take(std::move(*mine));
    }
  }

  std::string save() override {
    drain();
    std::ostringstream stream;
    if (const auto session = this->session()) {
      session->save(stream);
    } else if (!loaded_.empty()) {
      if (loaded_.front().world_size != options_.world_size) {
        throw Error(ErrorCode::invalid_argument,
                    "state_dict: the state that was loaded is of another number of ranks, over which residuals are "
                    "distributed in the next backward pass; call state_dict() after it");
      }
      session::write_state(loaded_.front(), stream);
    }
    return std::move(stream).str();
  }

  void load(const std::vector<std::string>& states) override {
    drain();
    std::vector<SavedState> parsed;
    for (std::size_t i = 0; i < states.size(); ++i) {
      if (!states[i].empty()) {
        parsed.push_back(parse(states[i], i));
      }
    }
    if (!parsed.empty()) {
      parsed = states_for(options_.rank, options_.world_size, std::move(parsed));
    }
    end_session();
    ids_.assign(ids_.size(), std::nullopt);
    failure_.clear();
    loaded_ = std::move(parsed);
    ++generation_;
  }

  std::uint64_t step() override {
    drain();
    const auto session = this->session();
    return session ? session->step() : loaded_.empty() ? 0 : loaded_.front().step;
  }

  void set_loss_scale(double scale) override {
    drain();
    if (const auto session = this->session()) {
      session->set_loss_scale(scale);
    }
    loss_scale_ = scale;
  }

  std::string statistics() override {
    drain();
    const auto session = this->session();
    return session ? session->statistics().to_json() : std::string();
  }
  std::uint64_t residual_bytes() override {
    drain();
    const auto session = this->session();
    return session ? session->residual_bytes() : 0;
  }
  std::string explain() override {
    drain();
    const auto session = this->session();
    return session ? session->explain() : std::string();
  }

  void abort(const std::string& why) noexcept override {
    const MutexLock lock(mutex_);
    if (session_) {
      session_->abort(why);
    } else {
      put_failure(options_.store, generation_, options_.rank, why);
    }
  }

  void close() noexcept override {
    if (!home_.is_elsewhere() && !closing_.exchange(true)) {
      if (in_step_) {
        abort("this rank ended during a backward pass");
      }
      end_queue();
      end_session();
    }
  }

 private:
  [[nodiscard]] std::shared_ptr<drop_in::CallQueue> queue() {
    const MutexLock lock(mutex_);
    return queue_;
  }

  // Joins the thread, without the lock that its jobs take.
  void end_queue() {
    std::shared_ptr<drop_in::CallQueue> ended;
    const MutexLock lock(mutex_);
    ended.swap(queue_);
  }

  void drain() {
    if (const std::shared_ptr<drop_in::CallQueue> jobs = queue()) {
      jobs->drain();
    }
  }

  // Any thread may call abort() while a step is under way.
  [[nodiscard]] std::shared_ptr<Session> session() {
    const MutexLock lock(mutex_);
    return session_;
  }
  void set_session(std::shared_ptr<Session> session) {
    const MutexLock lock(mutex_);
    session_.swap(session);
  }
  void end_session() noexcept {
    const std::shared_ptr<Session> ended = session();
    set_session(nullptr);
    if (ended && options_.ended) {
      try {
        options_.ended(ended->statistics());
      } catch (...) {  // NOLINT(bugprone-empty-catch): a report lacks the session's numbers
      }
    }
  }

  void take(HookBucket bucket) noexcept {
    const bool begins = step_.empty();
    step_.push_back(std::move(bucket));
    try {
      reduce(step_.back(), begins);
    } catch (...) {
      fail(current_error());
    }
  }

  void reduce(const HookBucket& bucket, bool begins) {
    if (!failure_.empty()) {
      throw Error(ErrorCode::aborted, "an earlier backward pass failed: " + failure_, ErrorCause::world);
    }
    if (bucket.first != begins) {
      throw Error(ErrorCode::invalid_argument,
                  begins ? "a backward pass began with another bucket than the first"
                         : "a backward pass began before all buckets of the one before were there; was that one ended "
                           "by an exception?");
    }
    std::shared_ptr<Session> session = this->session();
    if (session) {
      give(*session, bucket);
    } else if (bucket.last) {
      session = begin_session();
    }
    if (bucket.last) {
      member_->set_stream(bucket.stream);
      session->finish();
      end_step(nullptr);
    }
  }

  // Parameters have the order of the model, whatever that of DDP's buckets is.
  [[nodiscard]] std::shared_ptr<Session> begin_session() {
    std::vector<const HookGradient*> gradients(options_.parameters.size());
    for (const HookBucket& bucket : step_) {
      for (const HookGradient& gradient : bucket.gradients) {
        gradients[gradient.parameter] = &gradient;
      }
    }
    member_->set_stream(step_.back().stream);
    const transport::Rendezvous store = with_prefix(options_.store, generation_);
    auto session = std::make_shared<Session>(member_->make_session(options_, store, [&] { throw_if_over(store); }));
    set_session(session);
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      if (gradients[i] != nullptr) {
        const HookParameter& parameter = options_.parameters[i];
        ids_[i] = session->add(parameter.name, gradients[i]->view, TensorOptions{.ndim = parameter.ndim});
      }
    }
    if (!loaded_.empty()) {
      session::Access::load(*session, loaded_, "load_state_dict");
      loaded_.clear();
    }
    if (loss_scale_) {
      session->set_loss_scale(*loss_scale_);
    }
    for (const HookBucket& bucket : step_) {
      give(*session, bucket);
    }
    return session;
  }

  void give(Session& session, const HookBucket& bucket) {
    member_->set_stream(bucket.stream);
    for (const HookGradient& gradient : bucket.gradients) {
      if (!ids_[gradient.parameter]) {
        throw Error(ErrorCode::invalid_argument,
                    "parameter \"" + options_.parameters[gradient.parameter].name +
                        "\" was in no bucket of the first backward pass; make a new hook where parameters change");
      }
      session.ready(*ids_[gradient.parameter], gradient.view);
    }
  }

  // Ends waits for other ranks while the session is made.
  void throw_if_over(const transport::Rendezvous& store) const {
    if (closing_) {
      throw Error(ErrorCode::aborted, "the hook is closed");
    }
    std::string why;
    try {
      why = store.get(kFailureKey, std::chrono::milliseconds(0));
    } catch (const std::exception&) {
      return;  // nobody has failed
    }
    throw Error(ErrorCode::aborted, why, ErrorCause::world);
  }

  void fail(const Error& error) noexcept {
    try {
      if (failure_.empty()) {
        failure_ = error.what();
      }
      if (error.cause() == ErrorCause::rank) {
        abort(error.what());
      }
      end_step(exception_of(error.what()));
    } catch (...) {  // no memory for the text
      end_step(std::current_exception());
    }
  }

  void end_step(const std::exception_ptr& error) noexcept {
    std::vector<HookBucket> ended = std::exchange(step_, {});
    in_step_ = false;
    for (HookBucket& bucket : ended) {
      bucket.done(error);
    }
  }

  const Home home_;
  const HookOptions options_;
  std::unique_ptr<HookMember> member_;
  std::vector<std::optional<TensorId>> ids_;  // by parameter; empty: it takes no part
  std::vector<HookBucket> step_;              // buckets of the backward pass that is under way
  std::vector<SavedState> loaded_;            // for the next session
  std::optional<double> loss_scale_;
  std::string failure_;
  std::atomic<int> generation_ = 0;    // of the session
  std::atomic<bool> in_step_ = false;  // a bucket was posted that is not done
  std::atomic<bool> closing_ = false;
  Mutex mutex_;
  std::shared_ptr<Session> session_ GUARDED_BY(mutex_);
  std::shared_ptr<drop_in::CallQueue> queue_ GUARDED_BY(mutex_);  // null if the session only enqueues
};

class HostMember final : public HookMember {
 public:
  Session make_session(const HookOptions& options, const transport::Rendezvous& store,
                       const std::function<void()>& go_on) override {
    return {connect_ranks(
                store,
                {.rank = options.rank, .world_size = options.world_size, .timeout = options.timeout, .go_on = go_on}),
            options.policy, session_options(options)};
  }
  bool enqueues() const noexcept override { return false; }
};

}  // namespace

std::unique_ptr<HookEngine> make_hook_engine(HookOptions options, std::unique_ptr<HookMember> member) {
  return std::make_unique<SessionHook>(std::move(options), std::move(member));
}

std::unique_ptr<HookEngine> make_host_hook_engine(HookOptions options) {
  return make_hook_engine(std::move(options), std::make_unique<HostMember>());
}

// A loss scaler skips steps itself, alike on all ranks, if it finds NaN or Inf in the results.
SessionOptions session_options(const HookOptions& options) {
  return {.reduction = Reduction::mean, .timeout = options.timeout, .nonfinite = Nonfinite::propagate};
}

void tell_of_failure(const transport::Rendezvous& store, int rank, const std::string& why) noexcept {
  put_failure(store, 0, rank, why);
}

}  // namespace gradwire::torch_c10d
