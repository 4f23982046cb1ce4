#include "plugins/mpi_preload/comm_state.hpp"

#include <numeric>
#include <utility>
#include <vector>

#include "plugins/mpi_preload/exchange.hpp"
#include "plugins/mpi_preload/observed.hpp"
#include "plugins/mpi_preload/process.hpp"
#include "plugins/mpi_preload/quiet_errors.hpp"
#include "plugins/mpi_preload/requests.hpp"
#include "session/peers.hpp"
#include "transport/mpi_check.hpp"
#include "transport/mpi_check_in.hpp"
#include "transport/mpi_environment.hpp"
#include "transport/mpi_faults.hpp"
#include "transport/mpi_transport.hpp"

namespace gradwire::mpi_preload {

constinit thread_local std::array<CachedState, kCachedStates> t_cached{};
std::atomic<std::uint64_t> g_generation = 1;  // 0 is that of an empty cache

namespace {

using transport::check_mpi;

constexpr const char* kNoAnswer =
    "either it does not reach this call, or it runs without gradwire; give every rank the same preload, on other hosts "
    "too (`gradwire run` does). In a call that returns a request it may have initialised MPI below "
    "MPI_THREAD_MULTIPLE; "
    "GRADWIRE_THREADS=multiple raises that (gradwire run --threads=multiple)";
constexpr const char* kGaveUp =
    "it was in this call, but gave up waiting for another rank; raise GRADWIRE_TIMEOUT where ranks come later than "
    "that";

// The job's own MPI_Allreduce would poll here; a rank that is away for longer writes a checkpoint, say.
constexpr std::chrono::milliseconds kPolls{100};
constexpr std::uint64_t kWidestElement = 8;  // bytes, of the types that are ever compressed

int on_delete(MPI_Comm, int, void* value, void*) noexcept {
  auto* state = static_cast<CommState*>(value);
  {
    const std::lock_guard lock(process().mutex);
    std::erase(process().states, state);
  }
  ++g_generation;
  delete state;
  return MPI_SUCCESS;
}

int keyval() {
  // Not the mutex that on_delete takes: it is called under a lock of the library, which creating a key takes too.
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  int& key = process().keyval;
  if (key == MPI_KEYVAL_INVALID) {
    // A duplicate of the communicator starts anew.
    check_mpi(PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, &on_delete, &key, nullptr), "MPI_Comm_create_keyval");
  }
  return key;
}

CommState* make_state(MPI_Comm comm, int key) {
  auto state = std::make_unique<CommState>();
  int inter = 0;
  state->comm = comm;
  check_mpi(PMPI_Comm_test_inter(comm, &inter), "MPI_Comm_test_inter");
  check_mpi(PMPI_Comm_rank(comm, &state->rank), "MPI_Comm_rank");
  check_mpi(PMPI_Comm_size(comm, &state->size), "MPI_Comm_size");
  state->inter = inter != 0;
  // Errors of a generalized request go to the handler of MPI_COMM_WORLD, not to that of its communicator. So where MPI
  // goes on when ranks end, requests are its own.
  state->threads = transport::mpi_thread_level() == MPI_THREAD_MULTIPLE && !transport::tolerates_faults();
  check_mpi(PMPI_Comm_set_attr(comm, key, state.get()), "MPI_Comm_set_attr");
  begin_metrics();  // of a job whose MPI_Init was not seen
  const std::lock_guard lock(process().mutex);
  process().states.push_back(state.get());
  return state.release();
}

}  // namespace

CommState* find_state(MPI_Comm comm) noexcept {
  if (CommState* known = cached_state(comm)) {
    return known;
  }
  stop_if_foreign();
  try {
    if (comm == MPI_COMM_NULL || !may_act()) {
      return nullptr;
    }
    const std::uint64_t generation = g_generation.load(std::memory_order_acquire);
    const int key = keyval();
    void* value = nullptr;
    int found = 0;
    check_mpi(PMPI_Comm_get_attr(comm, key, &value, &found), "MPI_Comm_get_attr");
    auto* state = found != 0 ? static_cast<CommState*>(value) : make_state(comm, key);
    cache_slot(comm) = {comm, state, generation};
    return state;
  } catch (...) {  // then its calls are forwarded as they are
    return nullptr;
  }
}

void free_states() {
  std::vector<MPI_Comm> comms;
  {
    const std::lock_guard lock(process().mutex);
    for (const CommState* state : process().states) {
      comms.push_back(state->comm);
    }
  }
  for (MPI_Comm comm : comms) {
    PMPI_Comm_delete_attr(comm, process().keyval);
  }
}

CommState* known_state(MPI_Comm comm) noexcept {
  const int key = process().keyval;
  void* value = nullptr;
  int found = 0;
  const bool known = key != MPI_KEYVAL_INVALID && comm != MPI_COMM_NULL && may_act() &&
                     PMPI_Comm_get_attr(comm, key, &value, &found) == MPI_SUCCESS && found != 0;
  return known ? static_cast<CommState*>(value) : nullptr;
}

void drain_requests(MPI_Comm comm) noexcept {
  const CommState* state = known_state(comm);
  if (state != nullptr && state->requests) {
    state->requests->drain();
  }
}

CommState::CommState() = default;

CommState::~CommState() {
  requests.reset();
  if (beside != MPI_COMM_NULL) {
    PMPI_Comm_free(&beside);
  }
  count_into(process().ledger, false);
  if (rank == 0 && member && process().configuration.recording) {
    process().ledger.add_choices(name, member->choices());
  }
}

void CommState::count_into(drop_in::Ledger& ledger, bool early) const {
  using drop_in::Function;
  if (lost) {
    return;  // it was counted then
  }
  known.tell(ledger, size, [&](const drop_in::ChoiceClass& what) -> std::optional<drop_in::CallTotals::Measured> {
    std::unique_lock lock(mutex, std::defer_lock);
    return !early || lock.try_lock() ? member->measured(what) : std::nullopt;
  });
  for (std::size_t i = 0; i < passed.size(); ++i) {
    if (passed[i].calls == 0) {
      continue;
    }
    const Function function{static_cast<std::uint8_t>(i)};
    const drop_in::Reason reason = inter ? drop_in::Reason::intercommunicator : drop_in::Reason::below_floor;
    ledger.add({.function = function, .communicator_size = size, .reason = reason},
               drop_in::passed_totals(function, passed[i].calls, passed[i].bytes, size));
  }
}

bool CommState::drop_if_faulty() noexcept {
  bool faulty = transport::is_faulty(comm);
  {
    const std::lock_guard lock(connecting_);
    const auto made = transport_.lock();
    faulty = faulty || (made && transport::is_faulty(*made));
  }
  if (faulty && !lost) {
    count_into(process().ledger, false);
    lost = true;
    agreed = false;
    known.forget();  // before the member, which it points into
    member.reset();
    small_below = 0;
  }
  return faulty;
}

void CommState::revoke_private() noexcept {
  const std::lock_guard lock(connecting_);
  revoked_ = true;
  if (const auto made = transport_.lock()) {
    transport::revoke(*made);
  }
}

void CommState::reach_agreement() {
  if (member) {
    return;
  }
  const QuietErrors quiet(comm);
  if (!inter && size > 1) {
    answers_ = std::make_unique<SettingsExchange>(comm, settings_of_rank());
    name = find_name();
  }
  complete_agreement();
}

void CommState::begin_agreement() {
  answers_ = std::make_unique<SettingsExchange>(comm, settings_of_rank());
  last_answers_ = std::make_unique<SettingsExchange>(comm, settings_of_rank());  // no thread may begin one on `comm`
  name = find_name();
}

void CommState::complete_agreement() {
  const drop_in::Configuration& configuration = process().configuration;
  if (!inter && size > 1) {
    agreement = drop_in::agree(answers_->finish(configuration.longest_wait(), kNoAnswer));
    // A rank that gave up has sent its part too; only a second answer shows that it still takes part.
    if (!last_answers_) {
      last_answers_ = std::make_unique<SettingsExchange>(comm, settings_of_rank());
    }
    static_cast<void>(last_answers_->finish(configuration.longest_wait(), kGaveUp));
    answers_.reset();
    last_answers_.reset();
    if (rank == 0 && !agreement.disabled_because.empty()) {
      warn_once(agreement.warning());
    }
  }
  if (holds_all_ranks()) {
    const std::lock_guard lock(process().mutex);
    process().agreed_by_all = agreement;
  }
  if (apart || takes_requests()) {  // here, where the ranks are together: later they may come to two in two orders
    beside = apart ? make_private_apart() : make_private();
    PMPI_Comm_set_errhandler(beside, MPI_ERRORS_RETURN);
  }
  member = std::make_unique<drop_in::Member>(
      configuration, process().ledger, agreement, [this] { return connect(); }, name);
  agreed = true;
  small_below = configuration.planner.floor() / kWidestElement;
}

drop_in::RankSettings CommState::settings_of_rank() const {
  auto mine = drop_in::RankSettings::of(process().configuration);
  mine.requests = threads ? 1 : 0;
  return mine;
}

bool CommState::holds_all_ranks() const {
  int same = MPI_UNEQUAL;
  if (!inter) {
    check_mpi(PMPI_Comm_compare(comm, MPI_COMM_WORLD, &same), "MPI_Comm_compare");
  }
  return same != MPI_UNEQUAL;
}

drop_in::CommunicatorName CommState::find_name() const {
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Group world = MPI_GROUP_NULL;
  check_mpi(PMPI_Comm_group(comm, &group), "MPI_Comm_group");
  check_mpi(PMPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
  std::vector<int> own(static_cast<std::size_t>(size));
  std::vector<int> ranks(own.size());
  std::iota(own.begin(), own.end(), 0);
  const int translated = PMPI_Group_translate_ranks(group, size, own.data(), world, ranks.data());
  PMPI_Group_free(&group);
  PMPI_Group_free(&world);
  check_mpi(translated, "MPI_Group_translate_ranks");
  drop_in::CommunicatorName found{.ranks = session::hash_of(ranks.data(), ranks.size() * sizeof(int), 0),
                                  .size = static_cast<std::uint32_t>(size),
                                  .first = static_cast<std::uint32_t>(ranks.front())};
  const std::lock_guard lock(process().mutex);
  found.number = process().communicators[found]++;
  return found;
}

// A duplicate would run the copy callbacks of the job's attributes; a communicator of the same group does not.
MPI_Comm CommState::make_private() const {
  MPI_Comm base = beside != MPI_COMM_NULL ? beside : comm;
  // MPI can make none without waiting.
  transport::check_in(base, process().configuration.longest_wait(), "making a private communicator");
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Comm made = MPI_COMM_NULL;
  check_mpi(PMPI_Comm_group(base, &group), "MPI_Comm_group");
  const int created = PMPI_Comm_create(base, group, &made);
  PMPI_Group_free(&group);
  check_mpi(created, "making a private communicator (MPI_Comm_create)");
  return made;
}

// On a thread of our own the job's communicator has no room for collective calls.
MPI_Comm CommState::make_private_apart() const {
  constexpr int kTag = 26727;
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Comm made = MPI_COMM_NULL;
  check_mpi(PMPI_Comm_group(comm, &group), "MPI_Comm_group");
  const int created = PMPI_Comm_create_group(comm, group, kTag, &made);
  PMPI_Group_free(&group);
  check_mpi(created, "making a private communicator (MPI_Comm_create_group)");
  return made;
}

std::shared_ptr<Transport> CommState::connect() const {
  const QuietErrors quiet(comm);
  MPI_Comm base = make_private();
  const auto timeout = process().configuration.longest_wait();
  auto made = transport::make_mpi(base, {.ignore_broken_pipes = false, .yield = kPolls, .timeout = timeout});
  PMPI_Comm_free(&base);
  const std::lock_guard lock(connecting_);
  transport_ = made;
  if (revoked_) {  // by another thread, meanwhile
    transport::revoke(*made);
  }
  return made;
}

}  // namespace gradwire::mpi_preload
