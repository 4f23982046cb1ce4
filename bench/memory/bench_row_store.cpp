// Tables of which a tenth of the rows fits into memory, beside the same tables in memory: rows that two ranks (threads)
// pull and push per second, where 99% or 90% of accesses are of rows that fit, and with ids of a Zipf distribution. The
// disk's random reads are measured right before each table: by fio if it is installed, and with the requests of tables.
//   bench_row_store [--folder /var/tmp] [--rows 1000000] [--memory 36MiB] [--seconds 5] [--json FILE] [--markdown FILE]
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <deque>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/units.hpp"
#include "bench/memory/fio.hpp"
#include "bench/support/command_line.hpp"
#include "bench/support/report.hpp"
#include "bench/support/text_table.hpp"
#include "gradwire/table.hpp"
#include "gradwire/transport.hpp"
#include "memory/block.hpp"
#include "memory/page_file.hpp"

namespace gradwire::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Ids = std::vector<std::uint64_t>;

constexpr int kRanks = 2;
constexpr std::uint32_t kWidth = 64;
constexpr std::uint64_t kStaleness = 4;

struct Options {
  std::string folder = "/var/tmp";
  std::uint64_t rows = 1'000'000;
  std::string memory = "36MiB";
  std::size_t batch = 4096;
  double seconds = 5;
  std::string json;
  std::string markdown;
};

struct Scene {
  std::string name;
  bool store;
  double hot;  // share of accesses of rows that fit; above 1: a Zipf distribution
};

/// Random reads of 4 KiB per second, with 128 at once.
struct Disk {
  double own = 0;  // through the scratch file of tables
  double fio = 0;  // 0 where it is not installed
  [[nodiscard]] double best() const { return std::max(own, fio); }
};

struct Result {
  double rows_per_second = 0;  // of both ranks, pulled and pushed
  double hits = 0;             // share of pulled rows that lay in memory
  double reads_per_second = 0;
  std::uint64_t held = 0;
  std::uint64_t in_memory = 0;
  std::uint64_t memory_bytes = 0;
};

double own_reads(const Options& options) {
  constexpr std::size_t kAtOnce = 128;
  constexpr std::uint64_t kPages = 200'000;
  constexpr std::size_t kRun = 64;
  memory::PageFile file({.folder = options.folder, .holds = "a benchmark", .in_flight = kAtOnce});
  const memory::Block block(kAtOnce * memory::kFileUnit, memory::MemoryUse::tables);
  const std::span<std::byte> memory(block.data(), block.bytes());
  std::mt19937_64 random(1);
  for (std::byte& byte : memory) {
    byte = static_cast<std::byte>(random());
  }
  for (std::uint64_t page = 0; page < kPages; page += kRun) {
    file.wait(file.write(page, memory.first(kRun * memory::kFileUnit)));
  }
  std::deque<memory::PageFile::Ticket> tickets;
  std::uint64_t reads = 0;
  const Clock::time_point begin = Clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  while (elapsed() < options.seconds) {
    for (std::size_t i = 0; i < kAtOnce; ++i, ++reads) {
      if (tickets.size() == kAtOnce) {
        file.wait(tickets.front());
        tickets.pop_front();
      }
      tickets.push_back(file.read(random() % kPages, memory.subspan(i * memory::kFileUnit, memory::kFileUnit)));
    }
  }
  for (const memory::PageFile::Ticket& ticket : tickets) {
    file.wait(ticket);
  }
  return static_cast<double>(reads) / elapsed();
}

Disk disk_reads(const Options& options) {
  const std::optional<Json> job =
      run_fio(options.folder, "--size=800M --bs=4k --rw=randread --iodepth=128 --runtime=" +
                                  std::to_string(std::max(1, static_cast<int>(options.seconds))));
  return {.own = own_reads(options), .fio = job ? (*job)["read"]["iops"].get<double>() : 0};
}

/// Draws ids; row i of the most used ones is spread over the table.
class Draw {
 public:
  Draw(const Options& options, double hot, unsigned seed) : options_(options), hot_(hot), random_(seed) {
    if (hot > 1) {
      double sum = 0;
      for (std::uint64_t i = 0; i < options.rows; ++i) {
        sum += 1 / std::pow(static_cast<double>(i + 1), 1.05);
        sums_.push_back(sum);
      }
    }
  }
  Ids ids() {
    Ids ids(options_.batch);
    const std::uint64_t fits = options_.rows / 20;
    for (std::uint64_t& id : ids) {
      std::uint64_t number = 0;
      if (!sums_.empty()) {
        const double at = std::uniform_real_distribution<double>(0, sums_.back())(random_);
        number = static_cast<std::uint64_t>(std::lower_bound(sums_.begin(), sums_.end(), at) - sums_.begin());
      } else {
        number = std::uniform_real_distribution<double>(0, 1)(random_) < hot_
                     ? random_() % fits
                     : fits + random_() % (options_.rows - fits);
      }
      id = number * 0x9E3779B1U % options_.rows;
    }
    return ids;
  }

 private:
  const Options& options_;
  double hot_;
  std::mt19937_64 random_;
  std::vector<double> sums_;
};

void fill(Table& table, std::uint64_t rows) {
  constexpr std::uint64_t kAtOnce = 10'000;
  const std::vector<float> values(kAtOnce * kWidth, 0.5F);
  for (std::uint64_t first = 0; table.rank() == 0 && first < rows; first += kAtOnce) {
    Ids ids(std::min(kAtOnce, rows - first));
    std::iota(ids.begin(), ids.end(), first);
    table.push(ids, std::span(values).first(ids.size() * kWidth));
  }
  table.synchronize();
}

// Both ranks make as many steps, or one would wait for the clock of the other: rank 0 sets the last one.
struct Ends {
  static constexpr std::uint64_t kOpen = ~std::uint64_t{0};
  std::atomic<std::uint64_t> warmed{kOpen}, measured{kOpen};
};

Result measure_rank(Table& table, const Options& options, const Scene& scene, Ends& ends) {
  Draw draw(options, scene.hot, 7 + static_cast<unsigned>(table.rank()));
  std::vector<float> rows(options.batch * kWidth);
  const std::vector<float> gradients(rows.size(), 0.01F);
  std::vector<Ids> batches;
  for (int i = 0; i < 200; ++i) {
    batches.push_back(draw.ids());
  }
  Result result;
  TableStatistics before;
  std::size_t next = 0;
  std::uint64_t done = 0;
  const auto run = [&](double seconds, std::atomic<std::uint64_t>& end) {
    const Clock::time_point begin = Clock::now();
    const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
    for (done = 0; next < end; done += options.batch) {
      if (table.rank() == 0 && end == Ends::kOpen && elapsed() > seconds) {
        end = next + 2 * kStaleness;
      }
      const Ids& ids = batches[next++ % batches.size()];
      if (scene.store) {
        table.prefetch(batches[next % batches.size()]);
      }
      table.pull(ids, rows);
      table.push(ids, gradients);
      table.tick();
    }
    return elapsed();
  };
  static_cast<void>(run(options.seconds / 2, ends.warmed));
  before = table.statistics();
  const double took = run(options.seconds, ends.measured);
  const TableStatistics after = table.statistics();
  result.rows_per_second = static_cast<double>(done) / took;
  result.reads_per_second = static_cast<double>(after.store.reads - before.store.reads) / took;
  result.held = after.rows_held;
  result.in_memory = after.store.rows_in_memory;
  result.memory_bytes = after.store.memory_bytes;
  return result;
}

Result measure(const Options& options, const Scene& scene) {
  TableOptions t{.rows = options.rows, .width = kWidth, .optimizer = RowOptimizer::adagrad, .staleness = kStaleness};
  if (scene.store) {
    t.store = "file:" + options.folder;
    t.memory = parse_bytes(options.memory);
  }
  const auto world = make_inproc_world(kRanks);
  std::mutex mutex;
  Ends ends;
  Result all;
  std::vector<std::thread> threads;
  for (const auto& transport : world) {
    threads.emplace_back([&, transport] {
      Table table(transport, t);
      fill(table, options.rows);
      const Result own = measure_rank(table, options, scene, ends);
      const std::lock_guard lock(mutex);
      all.rows_per_second += own.rows_per_second;
      all.reads_per_second += own.reads_per_second;
      all.held += own.held;
      all.in_memory += own.in_memory;
      all.memory_bytes = std::max(all.memory_bytes, own.memory_bytes);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return all;
}

int run(int argc, char** argv) {
  Options options;
  CommandLine line{"Tables of which a tenth of the rows fits into memory."};
  line.option("--folder", options.folder, "Where the scratch files lie");
  line.option("--rows", options.rows, "Rows of the table").range(1000, 1 << 30);
  line.option("--memory", options.memory, "Memory of each rank, such as 36MiB");
  line.option("--batch", options.batch, "Rows a step and rank").range(1, 1 << 20);
  line.option("--seconds", options.seconds, "Seconds of each measurement").range(0.1, 1000.0);
  line.option("--json", options.json, "file for the results");
  line.option("--markdown", options.markdown, "file for the table");
  line.parse(argc, argv);
  Json report = make_report("gradwire.bench_row_store.2");
  double held_for_one = 0;
  report["rows"] = Json::array();
  TextTable table({"rows lie in", "accesses", "rows/s, both ranks", "cold", "read from the file/s", "disk by fio",
                   "disk by tables", "of the better"});
  for (const Scene& scene :
       {Scene{"memory", false, 0.99}, Scene{"memory and file", true, 0.99}, Scene{"memory and file", true, 0.90},
        Scene{"memory", false, 2}, Scene{"memory and file", true, 2}}) {
    const Disk disk = scene.store ? disk_reads(options) : Disk{};
    const Result result = measure(options, scene);
    if (scene.store) {
      held_for_one = static_cast<double>(result.held) / static_cast<double>(result.in_memory);
    }
    const std::string ids = scene.hot > 1 ? "Zipf, 1.05" : fixed(100 * scene.hot, 0) + "% of rows that fit";
    report["rows"].push_back({{"rows_lie_in", scene.name},
                              {"ids", ids},
                              {"rows_per_second", result.rows_per_second},
                              {"reads_per_second", result.reads_per_second},
                              {"fio_reads_per_second", number_or_null(disk.fio > 0 ? disk.fio : std::nan(""))},
                              {"disk_reads_per_second", number_or_null(disk.own > 0 ? disk.own : std::nan(""))},
                              {"rows_held", result.held},
                              {"rows_in_memory", result.in_memory},
                              {"memory_bytes", result.memory_bytes}});
    const auto of_store = [&](const std::string& text) { return scene.store ? text : "-"; };
    table.add({scene.name, ids, fixed(result.rows_per_second, 0),
               of_store(fixed(100 * result.reads_per_second / result.rows_per_second, 1) + "%"),
               of_store(fixed(result.reads_per_second, 0)), disk.fio > 0 ? fixed(disk.fio, 0) : "-",
               of_store(fixed(disk.own, 0)), of_store(fixed(100 * result.reads_per_second / disk.best(), 0) + "%")});
  }
  const std::string head = "bench_row_store: 2 ranks as threads, " + std::to_string(options.rows) + " rows of " +
                           std::to_string(kWidth) + " f32 with Adagrad, " + options.memory +
                           " of memory a rank, which hold one row of " + fixed(held_for_one, 1) +
                           "; disk: random reads of 4 KiB a second, 128 at once, right before\n";
  publish(head, table, {options.markdown, options.json}, report);
  return 0;
}

}  // namespace
}  // namespace gradwire::bench

int main(int argc, char** argv) {
  return gradwire::bench::program("bench_row_store", [&] { return gradwire::bench::run(argc, argv); });
}
