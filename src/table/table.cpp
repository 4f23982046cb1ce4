#include "gradwire/table.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>
#include <utility>

#include "base/current_error.hpp"
#include "base/elapsed.hpp"
#include "base/forked.hpp"
#include "base/timeout.hpp"
#include "codec/codec.hpp"
#include "observe/record.hpp"
#include "observe/sources.hpp"
#include "table/driver.hpp"
#include "table/merge.hpp"
#include "table/options.hpp"
#include "table/table_file.hpp"
#include "transport/sealed_transport.hpp"

namespace gradwire {
namespace {

using table::MergedIds;
using table::MessageKind;
using table::Service;

// The first character of the texts that ranks exchange; the rest is an error's text, or the rank's own text.
constexpr char kFine = '+';
constexpr char kFailed = '-';

}  // namespace

struct Table::State {
  const Home home;
  State(std::shared_ptr<Transport> transport, TableOptions o);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  /// Collective. Throws on every rank if any has a `problem`; that rank throws its own. Else returns all ranks' texts.
  std::vector<std::string> agree(const char* call, const std::optional<Error>& problem, const std::string& mine,
                                 table::Topic topic = table::Topic::collective) const;
  void check_finite(const char* call, std::span<const std::uint64_t> ids, std::span<const float> values) const;
  void write(const char* call, MessageKind kind, std::span<const std::uint64_t> ids,
             std::span<const float> values) const;
  [[nodiscard]] std::string said(const char* call) const { return "table \"" + options.name + "\": " + call; }
  [[nodiscard]] table::FileHead file_head() const;
  [[nodiscard]] observe::Event event(observe::EventKind kind, std::size_t values) const {
    return {.bytes = values * sizeof(float), .source = driver->source(), .kind = kind};
  }

  /// Publishes the ages of rows now and then, for observers. Under the driver's lock.
  void publish(const Service& service);

  TableOptions options;
  int exceptions = std::uncaught_exceptions();
  double wait_seconds = 0;                                         // under the driver's lock
  std::optional<std::chrono::steady_clock::time_point> published;  // likewise
  std::unique_ptr<table::Driver> driver;
};

Table::State::State(std::shared_ptr<Transport> transport, TableOptions o) : options(std::move(o)) {
  std::optional<Error> problem;
  try {
    table::check_options(options);
    if (options.copies > 1) {
      throw Error(ErrorCode::unsupported, "table \"" + options.name +
                                              "\": copies = " + std::to_string(std::uint32_t{options.copies}) +
                                              ": a Table ends with any of its ranks, so that copies would serve "
                                              "nobody; use Session::add_table for rows that survive the end of ranks");
    }
    options = with_checked_timeout(std::move(options), "table");
    driver = std::make_unique<table::Driver>(transport, options);
  } catch (...) {
    problem = current_error();
    // The smallest table that can still report the error to the others.
    options = {.name = options.name, .rows = 1, .width = 1, .threading = options.threading};
    driver = std::make_unique<table::Driver>(std::move(transport), options);
  }
  const std::vector<std::string> texts =
      agree("making it", problem, table::agreement_text(options, driver->transport().world_size()));
  table::compare_agreements(options.name, texts);
}

Table::State::~State() {
  try {
    if (driver == nullptr || driver->failed()) {
      return;
    }
    if (std::uncaught_exceptions() > exceptions) {
      driver->abort(Error(ErrorCode::aborted, said("destroyed while an exception was thrown")));
    } else {
      static_cast<void>(driver->exchange("destroying it", {}));  // other ranks may still need rows of this rank
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): the abort has told the others
  }
}

std::vector<std::string> Table::State::agree(const char* call, const std::optional<Error>& problem,
                                             const std::string& mine, table::Topic topic) const {
  std::vector<std::string> texts =
      driver->exchange(call, problem ? kFailed + std::string(problem->what()) : kFine + mine, topic);
  if (problem) {
    throw Error(*problem);
  }
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    if (texts[rank].empty() || texts[rank].front() != kFine) {
      throw Error(ErrorCode::aborted, said(call) + " failed on rank " + std::to_string(rank) + ": " +
                                          texts[rank].substr(std::min<std::size_t>(1, texts[rank].size())));
    }
    texts[rank].erase(0, 1);
  }
  return texts;
}

void Table::State::check_finite(const char* call, std::span<const std::uint64_t> ids,
                                std::span<const float> values) const {
  if (codec::all_finite(codec::Working::f32, values.data(), values.size())) {
    return;
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (!codec::all_finite(codec::Working::f32, values.data() + i * options.width, options.width)) {
      throw Error(ErrorCode::invalid_argument, said(call) + ": the row for id " + std::to_string(ids[i]) +
                                                   " has NaN or Inf; nothing was sent: leave this step out");
    }
  }
}

void Table::State::write(const char* call, MessageKind kind, std::span<const std::uint64_t> ids,
                         std::span<const float> values) const {
  const observe::Span span(event(observe::EventKind::push, values.size()));
  table::check_elements(said(call), ids.size(), values.size(), options.width);
  const MergedIds merged = table::merge_ids(ids, options.rows, said(call).c_str());
  const std::vector<float> rows = kind == MessageKind::push ? table::add_rows(merged, values, options.width)
                                                            : table::last_rows(merged, values, options.width);
  check_finite(call, merged.ids, rows);
  if (merged.ids.empty()) {
    return;
  }
  driver->with(call, [&](Service& service) {
    try {
      service.write(kind, merged.ids, rows.data());
    } catch (const Error& error) {
      throw Error(error.code(), said(call) + ": " + error.what());
    }
  });
  driver->throttle(call);
}

void Table::State::publish(const Service& service) {
  constexpr std::chrono::milliseconds kInterval{500};
  const auto now = std::chrono::steady_clock::now();
  if (!observe::on() || (published && now - *published < kInterval)) {
    return;
  }
  published = now;
  observe::publish({.source = driver->source(),
                    .knowledge = {.rows = observe::Knowledge::Rows{.pulled = service.rows_pulled(),
                                                                   .received = service.rows_received(),
                                                                   .ages = service.ages(),
                                                                   .greatest_age = service.greatest_age()}}});
}

table::FileHead Table::State::file_head() const {
  return {.name = options.name,
          .rank = driver->transport().rank(),
          .world_size = driver->transport().world_size(),
          .rows = options.rows,
          .width = options.width,
          .optimizer = options.optimizer};
}

Table::Table(std::shared_ptr<Transport> transport, TableOptions options) {
  if (transport == nullptr) {
    throw Error(ErrorCode::invalid_argument, "Table: transport is null");
  }
  state_ = std::make_unique<State>(transport::sealed_if_keyed(std::move(transport)), std::move(options));
}

Table::Table(Table&&) noexcept = default;
Table& Table::operator=(Table&& other) noexcept {
  leave_in_child(state_);
  state_ = std::move(other.state_);
  return *this;
}
Table::~Table() { leave_in_child(state_); }

int Table::rank() const noexcept { return state_->driver->transport().rank(); }
int Table::world_size() const noexcept { return state_->driver->transport().world_size(); }
const TableOptions& Table::options() const noexcept { return state_->options; }

int Table::owner(std::uint64_t id) const {
  static_cast<void>(table::merge_ids(std::span(&id, 1), state_->options.rows, state_->said("owner").c_str()));
  return state_->driver->with("owner", [&](const Service& service) { return service.owner(id); });
}

void Table::pull(std::span<const std::uint64_t> ids, std::span<float> rows) {
  State& state = *state_;
  const observe::Span span(state.event(observe::EventKind::pull, rows.size()));
  const auto begin = std::chrono::steady_clock::now();
  table::check_elements(state.said("pull"), ids.size(), rows.size(), state.options.width);
  MergedIds merged = table::merge_ids(ids, state.options.rows, state.said("pull").c_str());
  // Rows of a prefetch on its way need not be asked for again.
  state.driver->wait(
      "pull", [&](const Service& service) { return !service.prefetching(merged.ids); },
      [](const Service& /*service*/) { return "for rows that were prefetched"; });
  const auto pull = state.driver->with("pull", [&](Service& service) { return service.start_pull(merged.ids, false); });
  state.driver->wait(
      "pull", [&](const Service& /*service*/) { return pull->done(); },
      [&](const Service& service) { return service.describe_wait(*pull); });
  table::spread_rows(merged, pull->rows, state.options.width, rows);
  state.driver->with("pull", [&](const Service& service) {
    state.wait_seconds += seconds_since(begin);
    state.publish(service);
  });
}

void Table::push(std::span<const std::uint64_t> ids, std::span<const float> gradients) {
  state_->write("push", MessageKind::push, ids, gradients);
}

void Table::assign(std::span<const std::uint64_t> ids, std::span<const float> values) {
  state_->write("assign", MessageKind::assign, ids, values);
}

void Table::prefetch(std::span<const std::uint64_t> ids) {
  State& state = *state_;
  if (state.options.cache_bytes == 0) {
    throw Error(ErrorCode::invalid_argument, state.said("prefetch") + ": there is no cache; set cache_bytes");
  }
  MergedIds merged = table::merge_ids(ids, state.options.rows, state.said("prefetch").c_str());
  state.driver->with("prefetch",
                     [&](Service& service) { static_cast<void>(service.start_pull(std::move(merged.ids), true)); });
  state.driver->flush();
}

void Table::tick() {
  state_->driver->with("tick", [](Service& service) { service.tick(); });
  state_->driver->flush();
}

std::uint64_t Table::clock() const {
  return state_->driver->with("clock", [](const Service& service) { return service.clock(); });
}

void Table::progress() {
  state_->driver->with("progress", [](const Service& /*service*/) {});
  state_->driver->flush();
}

void Table::synchronize() {
  State& state = *state_;
  // After the first round every push has reached its owner; the second tells all ranks that every owner has got so far.
  state.agree("synchronize", {}, {});
  state.agree("synchronize", {}, {});
  state.driver->with("synchronize", [](Service& service) { service.distrust_cache(); });
}

TableSnapshot Table::snapshot() {
  table::Driver& driver = *state_->driver;
  const std::uint64_t number = driver.with("snapshot", [](Service& service) { return service.start_cut(); });
  driver.wait(
      "snapshot", [&](const Service& service) { return service.missing_in_cut(number).empty(); },
      [&](const Service& service) { return "for rank " + service.missing_in_cut(number); });
  return TableSnapshot(driver.with("snapshot", [&](Service& service) { return service.finished_cut(number); }));
}

void Table::save(const std::filesystem::path& directory) {
  State& state = *state_;
  const TableSnapshot view = snapshot();
  // Rank 0's name for this save goes into every file, so that files of different saves are never loaded together.
  std::optional<Error> problem;
  std::string name;
  try {
    name = rank() == 0 ? table::to_text(table::new_save_id(clock())) : "";
  } catch (...) {
    problem = current_error();
  }
  const std::vector<std::string> names = state.agree("save", problem, name, table::Topic::save);
  std::unique_ptr<DurableFile> file;
  std::vector<table::SaveId> before;
  try {
    table::FileHead head = state.file_head();
    head.save = table::save_of(names[0], 0);
    before = table::own_saves(head, directory);
    file = table::make_table_file(head, view.shard_->sorted(), directory);
  } catch (...) {
    problem = current_error();
  }
  // All ranks have written their new files before any replaces its old one. If a rank is killed then, a whole save
  // remains: the last one that all have is kept, which is the current one or, if a save was interrupted, the one
  // before.
  const auto whole = table::common_save(state.agree("save", problem, table::to_text(before), table::Topic::save));
  try {
    const bool keeps = before.size() < 2 || !whole || before.front() == *whole;
    file->commit(keeps ? DurableFile::Old::kept : DurableFile::Old::replaced);
  } catch (...) {
    problem = current_error();
  }
  state.agree("save", problem, {}, table::Topic::save);
}

void Table::load(const std::filesystem::path& directory) {
  State& state = *state_;
  std::optional<Error> problem;
  table::FileRows saved;
  std::string save;
  std::vector<std::string> saves;
  try {
    save = table::to_text(table::saves_in(state.file_head(), directory));
  } catch (...) {
    problem = current_error();
  }
  saves = state.agree("load", problem, save);
  try {
    saved = table::read_table_files(state.file_head(), directory, table::common_save(saves));
    save = table::to_text(saved.save, saved.path);
  } catch (...) {
    problem = current_error();
  }
  table::compare_saves(state.agree("load", problem, save));
  state.driver->with("load", [&](Service& service) { service.replace(saved.rows); });
  state.agree("load", {}, {});
  state.driver->with("load", [](Service& service) { service.distrust_cache(); });
}

TableStatistics Table::statistics() const {
  return state_->driver->with("statistics", [&](const Service& service) {
    TableStatistics statistics = service.statistics();
    statistics.wait_seconds = state_->wait_seconds;
    statistics.traffic = state_->driver->transport().counters();
    return statistics;
  });
}

void Table::abort(const std::string& why) noexcept {
  state_->driver->abort(make_error(ErrorCode::aborted, why, ErrorCause::world));
}

std::uint64_t TableSnapshot::rows() const noexcept { return shard_->rows(); }
std::span<const float> TableSnapshot::find(std::uint64_t id) const { return shard_->find(id); }

void TableSnapshot::for_each(const std::function<void(std::uint64_t id, std::span<const float> values)>& visit) const {
  for (const table::Shard::Row& row : shard_->sorted()) {
    visit(row.id, row.values);
  }
}

}  // namespace gradwire
