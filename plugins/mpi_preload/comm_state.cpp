#include "plugins/mpi_preload/comm_state.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <new>
#include <numeric>
#include <utility>

#include "base/mutex.hpp"
#include "exchange/peers.hpp"
#include "plan/hash.hpp"
#include "plugins/mpi_preload/consent.hpp"
#include "plugins/mpi_preload/describe.hpp"
#include "plugins/mpi_preload/observing.hpp"
#include "plugins/mpi_preload/process.hpp"
#include "plugins/mpi_preload/quiet_errors.hpp"
#include "plugins/mpi_preload/reduce.hpp"
#include "plugins/mpi_preload/requests.hpp"
#include "transport/mpi_check.hpp"
#include "transport/mpi_faults.hpp"

namespace gradwire::mpi_preload {
namespace {

using transport::check_mpi;

// The job's own MPI_Allreduce would poll here; a rank that is late for longer may be writing a checkpoint.
constexpr std::chrono::milliseconds kPolls{100};
constexpr std::uint64_t kWidestElement = 8;  // most bytes of an element that is ever compressed
// Most memory of a call, beside the job's, that ranks request before they agree.
constexpr std::uint64_t kMostAskedFor = std::uint64_t{64} << 20;

bool has_memory(std::uint64_t bytes) noexcept {
  void* const block = ::operator new(std::min(bytes, kMostAskedFor), std::nothrow);
  ::operator delete(block);
  return block != nullptr;
}

std::string number_text(const CommState& state) { return "a communicator of " + std::to_string(state.size) + " ranks"; }

}  // namespace

CommState::CommState(MPI_Comm of) : comm(of) {
  int is_inter = 0;
  check_mpi(PMPI_Comm_test_inter(comm, &is_inter), "MPI_Comm_test_inter");
  check_mpi(PMPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  check_mpi(PMPI_Comm_size(comm, &size), "MPI_Comm_size");
  inter = is_inter != 0;
  of_session = is_private(comm);
  if (of_session) {
    process().has_session = true;
    small_below = std::numeric_limits<std::uint64_t>::max();  // passes at once
    return;
  }
  const Process& self = process();
  if (compresses() && !inter && size > 1) {
    ranks = find_ranks();
    foreign = std::find(ranks.begin(), ranks.end(), MPI_UNDEFINED) != ranks.end();
    name = find_name();
  }
  if (foreign) {
    warn_once("calls on a communicator with ranks of another world (spawned, or connected) pass");
  }
  reducer = std::make_unique<drop_in::HostReducer>(self.configuration, process().ledger, self.agreement,
                                                   [this] { return connect(); });
  small_below = self.configuration.planner.floor() / kWidestElement;
}

CommState::~CommState() {
  requests.reset();
  known.tell_unseen(observe_seconds);
  count_into(process().ledger, false);
  if (rank == 0 && reducer && ordered_ && process().configuration.recording) {
    process().ledger.add_choices(name, reducer->choices());
  }
}

void CommState::count_into(drop_in::Ledger& ledger, bool early) const {
  using choice::Function;
  if (lost || of_session) {
    return;  // its calls were counted before, or are not the job's
  }
  known.tell(ledger, size, [&](const choice::ChoiceClass& what) -> std::optional<drop_in::CallTotals::Measured> {
    if (!early) {
      mutex.assert_held();  // at the state's end nobody else has it, and the mutex is free
      return reducer->measured(what);
    }
    if (!mutex.try_lock()) {
      return std::nullopt;
    }
    const MutexLock lock(mutex, std::adopt_lock);
    return reducer->measured(what);
  });
  for (std::size_t i = 0; i < passed.size(); ++i) {
    if (passed[i].calls == 0) {
      continue;
    }
    const Function function{static_cast<std::uint8_t>(i)};
    const choice::Reason reason = inter                                      ? choice::Reason::intercommunicator
                                  : function >= Function::mpi_allreduce_init ? choice::Reason::nonblocking
                                                                             : choice::Reason::below_floor;
    ledger.add({.function = function, .communicator_size = size, .reason = reason},
               drop_in::passed_totals(function, passed[i].calls, passed[i].bytes, size));
  }
}

void CommState::drop() noexcept {
  known.tell_unseen(observe_seconds);
  count_into(process().ledger, false);
  lost = true;
  known.forget();  // before the reducer is destroyed, into which it points
  reducer.reset();
  slot_.lease.reset();
  small_below = 0;
}

bool CommState::drop_if_faulty() noexcept {
  bool faulty = transport::is_faulty(comm);
  {
    const MutexLock lock(connecting_);
    const auto made = transport_.lock();
    faulty = faulty || (made && transport::is_faulty(*made));
  }
  if (faulty && !lost) {
    drop();
  }
  return faulty;
}

void CommState::revoke_private() noexcept {
  const MutexLock lock(connecting_);
  revoked_ = true;
  if (const auto made = transport_.lock()) {
    transport::revoke(*made);
  }
}

void CommState::settle_world(std::unique_ptr<drop_in::CallQueue> queue) {
  transport::MpiWorld& world = *process().world;
  if (world.tags().slots() == 0) {
    return;  // each call reports why it passes
  }
  slot_ = {.lease = std::make_shared<transport::SlotLease>(process().world, world.slots().take_first()),
           .number = 0,
           .comm = comm,
           .ranks = ranks};
  asked_for_requests = true;
  const MutexLock lock(mutex);
  take_order(next_order());  // comes before all others, so it is the same on all ranks
  if (queue) {
    requests = std::make_unique<Requests>(*this, std::move(queue));
  }
}

// Threads may use their communicators in different orders on different ranks, so rank 0's order holds for all.
std::uint32_t CommState::next_order() const {
  const MutexLock lock(process().mutex);
  return process().communicators[name]++;
}

void CommState::take_order(std::uint32_t order) {
  if (!std::exchange(ordered_, true)) {
    name.number = order;
    reducer->follow(name);
  }
}

// This rank's terms. If it cannot start a thread, or lacks memory, all ranks pass the calls, since later the lack would
// be an error of a call.
Terms CommState::terms_of_rank(const Reduce& made, bool for_requests, std::unique_ptr<drop_in::CallQueue>& queue) {
  Terms mine;
  if (rank == 0) {
    mine.number =
        has_slot() ? slot_.number : static_cast<std::uint64_t>(process().world->rank()) << 32 | ++process().numbered;
    mine.order = ordered_ ? name.number : next_order();
  }
  if (!has_memory(bytes_of(made.count, made.type))) {
    mine.refuse(Refusal::memory);
    warn_once("calls on " + number_text(*this) + " pass: this rank has no memory for what a call takes beside the job");
  }
  if (for_requests) {
    try {
      queue = std::make_unique<drop_in::CallQueue>();
    } catch (const std::exception& error) {
      mine.refuse(Refusal::thread);
      warn_once("MPI_Iallreduce and the like pass on " + number_text(*this) +
                ": this rank cannot start a thread for them (" + error.what() + ")");
    }
  }
  return mine;
}

void CommState::settle(const Reduce& made, bool could_compress) {
  // A slot may become free, or may just have been offered elsewhere, so this is tried again, more and more rarely.
  compressible += could_compress && !has_slot() ? 1 : 0;
  const bool for_slot = could_compress && !has_slot() && std::has_single_bit(compressible);
  const bool for_memory = could_compress && !asked_for_memory;
  const bool for_requests =
      wants_requests && !requests && process().agreement.requests && (!asked_for_requests || for_slot);
  asked_for_memory = asked_for_memory || could_compress;
  asked_for_requests = asked_for_requests || wants_requests;
  if (inter || foreign || size < 2 || lacks_memory || !(for_slot || for_memory || for_requests)) {
    return;
  }
  const QuietErrors quiet(comm);
  std::unique_ptr<drop_in::CallQueue> queue;
  transport::SlotTable& slots = process().world->slots();
  Terms mine = terms_of_rank(made, for_requests, queue);
  transport::SlotTable::Offer offer{.free = {}, .place = ~std::size_t{0}};
  if (!has_slot()) {
    offer = slots.offer();
    mine.slots = offer.free;
  }
  Terms all;
  if (agree_on_terms(comm, mine, {.call = call, .ranks = ranks}, all) !=
      MPI_SUCCESS) {  // the library's own call reports the reason
    static_cast<void>(slots.settle(offer, {}));
    drop();
    return;
  }
  take_order(all.order);
  const auto slot =
      slots.settle(offer, has_slot() || all.refused(Refusal::memory) ? transport::SlotTable::Set{} : all.slots);
  if (slot) {
    slot_ = {.lease = std::make_shared<transport::SlotLease>(process().world, *slot),
             .number = all.number,
             .comm = comm,
             .ranks = ranks};
  }
  if (has_slot() && !process().configuration.key_check.empty()) {
    check_consent(all);
  }
  if (for_requests && has_slot() && !all.refused(Refusal::thread)) {
    requests = std::make_unique<Requests>(*this, std::move(queue));
  }
  lacks_memory = all.refused(Refusal::memory);
  reducer->stand_aside(!has_slot() || lacks_memory);
  if (!has_slot() && !lacks_memory && rank == 0) {
    warn_once("calls on some communicators pass: no tags were free for them at that moment (" +
              std::to_string(process().world->tags().slots()) +
              " communicators can be compressed at the same time); this is tried again");
  }
}

// The exchange of terms, and the one in MPI_Init, are messages of MPI that anybody on the network can change.
void CommState::check_consent(const Terms& all) {
  const drop_in::AgreedSettings& agreed = process().agreement;
  const std::array<std::uint64_t, 4> settings{static_cast<std::uint64_t>(agreed.mode), agreed.dry_run ? 1U : 0U,
                                              agreed.requests ? 1U : 0U, static_cast<std::uint64_t>(size)};
  reducer->check_same(plan::hash_of(&all, sizeof all, plan::hash_of(settings.data(), sizeof settings, 0)),
                      "consent to compress on " + number_text(*this));
}

// While requests are under way, only their thread may use the router's plans.
bool CommState::decides_at_once(const choice::Call& what) {
  constexpr std::size_t kMost = 4096;
  if (!what.dtype) {
    return true;
  }
  if (at_once.size() >= kMost) {
    at_once.clear();
  }
  const auto [found, made] = at_once.try_emplace({what.count, *what.dtype});
  if (made) {
    found->second = drop_in::decides_at_once(process().configuration.planner, what);
  }
  return found->second;
}

std::vector<int> CommState::find_ranks() const {
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Group world = MPI_GROUP_NULL;
  check_mpi(PMPI_Comm_group(comm, &group), "MPI_Comm_group");
  check_mpi(PMPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
  std::vector<int> own(static_cast<std::size_t>(size));
  std::vector<int> found(own.size());
  std::iota(own.begin(), own.end(), 0);
  const int translated = PMPI_Group_translate_ranks(group, size, own.data(), world, found.data());
  PMPI_Group_free(&group);
  PMPI_Group_free(&world);
  check_mpi(translated, "MPI_Group_translate_ranks");
  return found;
}

drop_in::CommunicatorName CommState::find_name() const {
  drop_in::CommunicatorName found{.ranks = plan::hash_of(ranks.data(), ranks.size() * sizeof(int), 0),
                                  .size = static_cast<std::uint32_t>(size),
                                  .first = static_cast<std::uint32_t>(ranks.front())};
  return found;
}

// Called inside the first call that is compressed or compared. It makes no communicator and waits for no rank.
std::shared_ptr<Transport> CommState::connect() {
  if (!has_slot()) {
    throw Error(ErrorCode::internal, "the ranks of this communicator have not agreed to compress");
  }
  const auto tell_awaited = [this](const std::vector<int>& awaited) {
    std::vector<int> of_world;
    of_world.reserve(awaited.size());
    for (const int peer : awaited) {
      of_world.push_back(ranks[static_cast<std::size_t>(peer)]);
    }
    if (!process().configuration.quiet) {
      tell(call + " on " + number_text(*this) + " is compressed and waits for " + drop_in::name_ranks(of_world) +
           " (of MPI_COMM_WORLD)" +
           (process().configuration.timeout ? ""
                                            : ", as it would without gradwire; GRADWIRE_TIMEOUT bounds such waits"));
    }
  };
  auto made = transport::make_mpi(slot_, {.ignore_broken_pipes = false,
                                          .yield = kPolls,
                                          .on_silence = tell_awaited,
                                          .silence = process().configuration.warn_after});
  const MutexLock lock(connecting_);
  transport_ = made;
  if (revoked_) {  // another thread has revoked it meanwhile
    transport::revoke(*made);
  }
  return made;
}

}  // namespace gradwire::mpi_preload
