#include "session/parts/tables/session_tables.hpp"

#include <algorithm>
#include <chrono>
#include <sstream>
#include <utility>

#include "base/elapsed.hpp"
#include "base/units.hpp"
#include "plan/hash.hpp"
#include "session/parts/tables/row_pull.hpp"
#include "session/runner/agreements.hpp"
#include "table/options.hpp"

namespace gradwire::session {
namespace {

// The kind of an exchange, by which ranks notice that they are in different calls.
enum class Call : std::uint32_t {
  pushes = 1,
  weighted_pushes = 2,
  move = 3,
  pull = 4
};  // for a pull, the table's number is added
std::uint32_t number_of(Call call, std::uint32_t table = 0) { return static_cast<std::uint32_t>(call) + table; }

constexpr std::uint64_t kMovedBytes = 16 << 20;  // sent to one rank at once, approximately

void put_world(wire::Bytes& out, const TableWorld& world) {
  wire::put_number(out, static_cast<std::uint32_t>(world.members.size()));
  wire::put(out, world.members.data(), world.members.size() * sizeof(Processes::Id));
  wire::put_number(out, static_cast<std::uint32_t>(world.nodes.size()));
  wire::put(out, world.nodes.data(), world.nodes.size() * sizeof(std::uint32_t));
}

std::vector<std::uint32_t> take_numbers(wire::ByteReader& in) {
  const auto count = in.number<std::uint32_t>();
  if (count > in.left() / sizeof(std::uint32_t)) {
    in.fail("it ends too early");
  }
  std::vector<std::uint32_t> numbers(count);
  in.numbers(std::span(numbers));
  return numbers;
}

}  // namespace

std::uint32_t SessionTables::add(const SessionTableOptions& options) {
  for (const ReplicatedTable& other : tables_) {
    if (other.options().name == options.name) {
      throw Error(ErrorCode::invalid_argument,
                  "add_table: there is a table \"" + options.name + "\" already; give each one a name");
    }
  }
  tables_.emplace_back(options);
  tables_.back().enter(world_, rank_);
  return static_cast<std::uint32_t>(tables_.size() - 1);
}

std::uint32_t SessionTables::known(std::uint32_t number, const char* call) const {
  if (number >= tables_.size()) {
    throw Error(ErrorCode::invalid_argument, std::string(call) + ": there is no table " + std::to_string(number) +
                                                 "; use what add_table() of this session returned");
  }
  return number;
}

std::vector<std::string> SessionTables::describe() const {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    const SessionTableOptions& options = tables_[i].options();
    const std::string table = "table " + std::to_string(i);
    lines.push_back(table + ": \"" + options.name + "\"");
    // Earlier fingerprints contain the two lines about reads, which are the same for all tables of sessions.
    std::istringstream text(table::row_lines(options) + table::read_lines(0, true) +
                            "copies = " + std::to_string(options.copies) + "\n");
    for (std::string line; std::getline(text, line);) {
      const std::size_t equals = line.find(" = ");
      lines.push_back(table + " \"" + options.name + "\", " + line.substr(0, equals) + ": " + line.substr(equals + 3));
    }
  }
  return lines;
}

std::string SessionTables::explain() const {
  std::string text;
  for (const ReplicatedTable& table : tables_) {
    const SessionTableOptions& options = table.options();
    const std::size_t copies = std::min<std::size_t>(options.copies, std::max<std::size_t>(1, world_.members.size()));
    const std::uint64_t row = table::row_floats(options.optimizer, options.width) * sizeof(float);
    text += "table \"" + options.name + "\": " + std::to_string(options.rows) + " rows of " +
            std::to_string(options.width) + " f32, on " + std::to_string(copies) + (copies == 1 ? " rank" : " ranks") +
            " each; a row that was ever written takes " + format_bytes(row * copies) + " on all ranks together, and " +
            "its gradients go to " + (copies == 1 ? "the rank that holds it" : std::to_string(copies) + " ranks") +
            (copies == 1 ? "\n"
                         : ": so much of memory and of pushes more than with one copy, and rows survive the end "
                           "of " +
                               std::to_string(copies - 1) + (copies == 2 ? " rank\n" : " ranks\n"));
    if (!options.store.empty()) {
      text += "table \"" + options.name + "\": at most " + format_bytes(options.memory) +
              " of memory on this rank, the other rows in " + options.store + "\n";
    }
  }
  return text;
}

void SessionTables::enter(const TableWorld& world, int rank) {
  world_ = world;
  rank_ = rank;
  agreed_ = false;
  in_use_ = false;
  to_lie_in_.reset();
  moves_.clear();
  for (ReplicatedTable& table : tables_) {
    table.enter(world, rank);
  }
}

void SessionTables::agree(exchange::Peers& peers) {
  if (agreed_) {
    return;
  }
  constexpr const char* kWhat = "the agreement on tables";
  const std::string begin = "agreement: tables\n";
  std::string text = begin;
  for (const std::string& line : describe()) {
    text += line + "\n";
  }
  const std::vector<std::string> all = peers.all_gather(text, kWhat);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (!all[rank].starts_with(begin)) {  // the text belongs to another agreement
      throw Error(ErrorCode::mismatch, std::string(kWhat) + ": rank " + std::to_string(rank) +
                                           " is in another call; make each pull() on every rank, in the same order");
    }
  }
  compare_texts(all, "tables");
  agreed_ = true;
}

TableStatistics SessionTables::statistics(std::uint32_t number) const {
  return tables_[known(number, "table_statistics")].statistics();
}

std::vector<RowTable> SessionTables::row_tables() const {
  std::vector<RowTable> all;
  for (const ReplicatedTable& table : tables_) {
    const TableStatistics found = table.statistics();
    all.push_back({.name = table.options().name,
                   .rows_held = found.rows_held,
                   .rows_in_memory = found.store.rows_in_memory,
                   .rows_in_file = found.store.rows_in_file,
                   .hits = found.store.hits,
                   .reads = found.store.reads,
                   .memory_bytes = found.store.memory_bytes,
                   .file_bytes = found.store.file_bytes});
  }
  return all;
}

void SessionTables::check_pull(std::uint32_t number, std::span<const std::uint64_t> ids, std::size_t elements) const {
  tables_[known(number, "pull")].check("pull", ids, elements);
}

void SessionTables::pull(exchange::Peers& peers, std::uint32_t number, std::span<const std::uint64_t> ids,
                         std::span<float> rows) {
  const auto begin = std::chrono::steady_clock::now();
  agree(peers);
  ReplicatedTable& table = tables_[known(number, "pull")];
  const std::string what = table.said("pull");
  const std::size_t world = world_.members.size();
  RowPull pull(table.store(), table.counts(), ids, world);
  exchange::Peers::Messages messages;
  std::vector<std::uint64_t> sizes;
  for (std::size_t rank = 0; rank < world; ++rank) {
    messages.push_back(pull.ask(rank));
    sizes.push_back(pull.answer_bytes(rank));
    table.counts().traffic.bytes_sent += messages.back().size();
  }
  messages = peers.all_to_all(std::move(messages), number_of(Call::pull, number), what);
  for (std::size_t rank = 0; rank < world; ++rank) {
    table.counts().traffic.bytes_received += messages[rank].size();
    messages[rank] = RowPull::answer(table.store(), messages[rank], rank);
    table.counts().traffic.bytes_sent += messages[rank].size();
  }
  messages = peers.all_to_all(std::move(messages), sizes, what);
  for (std::size_t rank = 0; rank < world; ++rank) {
    table.counts().traffic.bytes_received += messages[rank].size();
    pull.take(rank, messages[rank]);
  }
  pull.give(rows);
  table.counts().wait_seconds += seconds_since(begin);
  in_use_ = true;
}

void SessionTables::exchange_pushes(exchange::Peers& peers, Reduction reduction, std::optional<double> weight) {
  agree(peers);
  const auto self = static_cast<std::size_t>(rank_);
  exchange::Peers::Messages messages(world_.members.size());
  for (wire::Bytes& message : messages) {
    if (weight) {
      wire::put_number(message, *weight);
    }
  }
  for (std::uint32_t number = 0; number < tables_.size(); ++number) {
    std::vector<std::size_t> before;
    std::ranges::transform(messages, std::back_inserter(before), &wire::Bytes::size);
    tables_[number].send_pushes(number, messages);
    for (std::size_t rank = 0; rank < messages.size(); ++rank) {
      tables_[number].counts().traffic.bytes_sent += rank == self ? 0 : messages[rank].size() - before[rank];
    }
  }
  messages = peers.all_to_all(std::move(messages), number_of(weight ? Call::weighted_pushes : Call::pushes),
                              "finish: pushes to tables");
  double total = weight ? 0 : static_cast<double>(messages.size());
  for (std::size_t rank = 0; rank < messages.size(); ++rank) {
    wire::ByteReader in(messages[rank], "what rank " + std::to_string(rank) + " pushed");
    const double share = weight ? in.number<double>() : 1;
    total += weight ? share : 0;
    while (in.left() > 0) {
      const std::size_t before = in.left();
      const std::uint64_t number = in.varint();
      if (number >= tables_.size()) {
        in.fail("there is no table " + std::to_string(number));
      }
      ReplicatedTable& table = tables_[number];
      table.take_pushes(in, share);
      table.counts().traffic.bytes_received += rank == self ? 0 : before - in.left();
    }
  }
  if (reduction == Reduction::mean && !(total > 0)) {
    throw Error(ErrorCode::invalid_argument, "finish: the weights of all ranks sum to 0; at least one must be above 0");
  }
  for (ReplicatedTable& table : tables_) {
    table.add_up(weight.has_value(), reduction == Reduction::mean ? std::optional(total) : std::nullopt);
    table.bring_pushed();  // so that an error of the file comes before the step counts
  }
}

void SessionTables::count() {
  in_use_ = false;
  for (ReplicatedTable& table : tables_) {
    table.count();
  }
  if (!lies_ && !tables_.empty()) {
    lies_ = world_;
  }
}

void SessionTables::push(std::uint32_t number, std::span<const std::uint64_t> ids, std::span<const float> gradients) {
  tables_[known(number, "push")].push(ids, gradients);
  in_use_ = true;
}

void SessionTables::forget_pushes() {
  in_use_ = false;
  for (ReplicatedTable& table : tables_) {
    table.forget_pushes();
  }
}

// Newcomers learn from other ranks where rows lie.
std::optional<TableWorld> SessionTables::agree_on_place(exchange::Peers& peers, bool holds) const {
  wire::Bytes mine;
  if (holds) {
    wire::put_number(mine, static_cast<std::uint8_t>(lies_ ? 1 : 0));
    put_world(mine, lies_.value_or(TableWorld{}));
  }
  const std::string text(wire::as_text(mine));
  const std::vector<std::string> all = peers.all_gather(text, "telling where rows of tables lie");
  const auto told = std::ranges::find_if(all, [](const std::string& one) { return !one.empty(); });
  if (told == all.end()) {
    throw Error(ErrorCode::too_few,
                "all ranks that held rows of tables have ended; start the job again from what it "
                "saved");
  }
  if (holds && *told != text) {
    throw Error(ErrorCode::internal, "ranks differ about where rows of tables lie");
  }
  wire::ByteReader in(std::as_bytes(std::span(*told)), "where rows of tables lie");
  const bool any = in.number<std::uint8_t>() != 0;
  TableWorld place{take_numbers(in), take_numbers(in)};
  in.expect_end();
  return any ? std::optional(std::move(place)) : std::nullopt;
}

void SessionTables::move(exchange::Peers& peers, bool holds) {
  if (tables_.empty()) {
    return;
  }
  const std::optional<TableWorld> from = agree_on_place(peers, holds);
  if (!from) {
    return;
  }
  moves_.clear();
  std::vector<RowMove::IdsByRank> rows;
  for (ReplicatedTable& table : tables_) {
    rows.push_back(moves_.emplace_back(table.store()).rows_for(*from, world_, rank_));
  }
  const std::size_t world = world_.members.size();
  std::vector<std::vector<std::size_t>> next(tables_.size(), std::vector<std::size_t>(world));
  // Ranks send some of the rows at a time until no rank has more. Each message begins with whether its sender has more.
  for (bool more = true; more;) {
    exchange::Peers::Messages messages(world, wire::Bytes(1));
    bool mine = false;
    for (std::size_t rank = 0; rank < world; ++rank) {
      for (std::uint32_t number = 0; number < tables_.size(); ++number) {
        const std::vector<std::uint64_t>& all = rows[number][rank];
        if (next[number][rank] < all.size() && messages[rank].size() < kMovedBytes) {
          wire::put_varint(messages[rank], number);
          moves_[number].send(all, next[number][rank], kMovedBytes, messages[rank]);
        }
        mine = mine || next[number][rank] < all.size();
      }
    }
    for (wire::Bytes& message : messages) {
      message[0] = static_cast<std::byte>(mine);
    }
    messages = peers.all_to_all(std::move(messages), number_of(Call::move), "moving rows of tables");
    more = false;
    for (std::size_t rank = 0; rank < world; ++rank) {
      wire::ByteReader in(messages[rank], "rows of tables from rank " + std::to_string(rank));
      more = in.number<std::uint8_t>() != 0 || more;
      while (in.left() > 0) {
        moves_[known(static_cast<std::uint32_t>(in.varint()), "moving rows")].stage(in);
      }
    }
  }
  to_lie_in_ = world_;
}

void SessionTables::install() {
  if (!to_lie_in_) {
    return;
  }
  for (RowMove& move : std::exchange(moves_, {})) {
    move.install();
  }
  lies_ = std::exchange(to_lie_in_, {});
}

std::vector<table::SavedTable> SessionTables::heads() const {
  std::vector<table::SavedTable> heads;
  for (const ReplicatedTable& table : tables_) {
    const SessionTableOptions& options = table.options();
    heads.push_back(
        {.name = options.name, .rows = options.rows, .width = options.width, .optimizer = options.optimizer});
  }
  return heads;
}

std::vector<table::SavedTable> SessionTables::save() {
  std::vector<table::SavedTable> saved = heads();
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    saved[i].layout =
        plan::hash_of(world_.members.data(), world_.members.size() * sizeof(Processes::Id), world_.members.size());
    saved[i].layout = plan::hash_of(world_.nodes.data(), world_.nodes.size() * sizeof(std::uint32_t), saved[i].layout);
    tables_[i].save(saved[i]);
  }
  return saved;
}

SessionTables::Loading::Loading(SessionTables& to) {
  for (ReplicatedTable& table : to.tables_) {
    table.store().shard().give_back();  // for the rows that are loaded
    tables_.emplace_back(table.options());
    tables_.back().enter(to.world_, to.rank_);
  }
}

bool SessionTables::Loading::wants(std::size_t number, const table::SavedTable& table) {
  layout_ = layout_.value_or(table.layout);
  if (number >= tables_.size() || table.layout != layout_) {
    return false;  // the reader of the files reports why
  }
  const SessionTableOptions& options = tables_[number].options();
  return table.rows == options.rows && table.width == options.width && table.optimizer == options.optimizer;
}

bool SessionTables::Loading::take(std::size_t number, const table::Shard::Row& row) {
  return tables_[number].restore(row);
}

void SessionTables::load(Loading&& loading) {
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    tables_[i].take_rows(std::move(loading.tables_[i]));
  }
  if (!tables_.empty()) {
    lies_ = world_;
  }
}

}  // namespace gradwire::session
