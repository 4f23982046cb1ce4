// Runs jobs of four ranks under Debian's Prometheus: its HTTP API must report what the jobs print. Also runs promtool
// on docs/monitoring.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/http_get.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kRanks = 4;
const std::string kDocs = GRADWIRE_SOURCE_DIR "/docs/monitoring/";

// A program that is ended with this object, if it has not ended by itself. It leads a process group, which is ended
// with it.
class Running {
 public:
  Running(const std::string& command, const std::string& log) {
    posix_spawnattr_t attributes;
    ::posix_spawnattr_init(&attributes);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    std::string line = "exec " + command + " >'" + log + "' 2>&1";
    std::string shell = "/bin/sh";
    std::string option = "-c";
    char* const arguments[] = {shell.data(), option.data(), line.data(), nullptr};
    if (::posix_spawn(&pid_, "/bin/sh", nullptr, &attributes, arguments, environ) != 0) {
      pid_ = -1;
    }
    ::posix_spawnattr_destroy(&attributes);
  }
  ~Running() {
    if (pid_ > 0) {
      ::kill(-pid_, SIGTERM);
      static_cast<void>(wait());
    }
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  int wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t pid_ = -1;
};

template <typename Ready>
bool wait_until(Ready&& ready) {
  for (int i = 0; i < 600; ++i) {
    if (ready()) {
      return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return false;
}

std::string url_of(const std::string& query) {
  std::string text;
  for (const char c : query) {
    char hex[4];
    std::snprintf(hex, sizeof hex, "%%%02X", static_cast<unsigned>(static_cast<unsigned char>(c)));
    text += std::isalnum(static_cast<unsigned char>(c)) != 0 ? std::string(1, c) : hex;
  }
  return "/api/v1/query?query=" + text;
}

// A server that scrapes the ranks' ports.
class Server {
 public:
  Server(const ScratchFolder& folder, std::uint16_t first) : port_(free_ports()) {
    std::ofstream config(folder.file("prometheus.yml"));
    config << "global: {scrape_interval: 500ms, evaluation_interval: 1s}\nrule_files: ['" << kDocs
           << "alerts.yml']\nscrape_configs: [{job_name: gradwire, static_configs: [{targets: [";
    for (int rank = 0; rank < kRanks; ++rank) {
      config << "'127.0.0.1:" << first + rank << "', ";
    }
    config << "]}]}]\n";
    config.close();
    running_.emplace("prometheus --config.file='" + folder.file("prometheus.yml") + "' --storage.tsdb.path='" +
                         folder.file("data") + "' --web.listen-address=127.0.0.1:" + std::to_string(port_),
                     folder.file("prometheus.log"));
  }

  // Returns the answer to a query, by rank.
  std::map<int, double> ask(const std::string& query) const {
    std::map<int, double> values;
    const auto answer = http_get(port_, url_of(query));
    if (!answer) {
      return values;
    }
    const json said = json::parse(*answer);
    for (const auto& result : said.at("data").at("result")) {
      const json& labels = result.at("metric");
      values[labels.contains("rank") ? std::stoi(labels.at("rank").get<std::string>()) : -1] =
          std::stod(result.at("value").at(1).get<std::string>());
    }
    return values;
  }
  // Asks until the server has scraped the wanted values.
  std::map<int, double> wait_for(const std::string& query, const std::map<int, double>& wanted) const {
    std::map<int, double> got;
    wait_until([&] { return (got = ask(query)) == wanted; });
    return got;
  }

 private:
  std::uint16_t port_;
  std::optional<Running> running_;
};

class Prometheus : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* program : {"prometheus", "promtool"}) {
      if (run_program("command -v " + std::string(program)).status != 0) {
        GTEST_SKIP() << program << " is not here: ./run setup observe";
      }
    }
  }
  // Returns the values in the job's output, by rank.
  static std::map<int, double> said(const std::string& text, const std::string& what) {
    std::map<int, double> values;
    const std::regex line("rank (\\d+) .*\\b" + what + " (\\d+)");
    for (std::sregex_iterator match(text.begin(), text.end(), line), end; match != end; ++match) {
      values[std::stoi((*match)[1])] = std::stod((*match)[2]);
    }
    return values;
  }
  static std::string mpirun(const std::string& environment, const std::string& arguments) {
    return "env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout -k 5 120 '" GRADWIRE_MPIEXEC
           "' --oversubscribe --mca mpi_yield_when_idle 1 " +
           environment + " -np " + std::to_string(kRanks) + " '" GRADWIRE_JOB "' " + arguments;
  }
};

void touch(const std::string& file) { std::ofstream(file) << '\n'; }

TEST_F(Prometheus, SeesTheJobsOwnCounts) {
  const ScratchFolder folder;
  const std::uint16_t port = free_ports(kRanks);
  const Server server(folder, port);
  Running job(mpirun("-x GRADWIRE_METRICS=http:" + std::to_string(port) + "+rank", "'" + folder.file("end") + "'"),
              folder.file("job.log"));
  std::string text;
  ASSERT_TRUE(wait_until([&] {
    text = read_text(folder.path() / "job.log");
    return said(text, "sent").size() == kRanks;
  })) << text;
  EXPECT_EQ(server.wait_for("gradwire_steps_total", said(text, "steps")), said(text, "steps"))
      << read_text(folder.path() / "prometheus.log");
  EXPECT_EQ(said(text, "steps"), (std::map<int, double>{{0, 20}, {1, 20}, {2, 20}, {3, 20}}));
  EXPECT_EQ(server.wait_for("sum by (rank) (gradwire_bytes_in_total)", said(text, "in")), said(text, "in"));
  EXPECT_EQ(server.wait_for("sum by (rank) (gradwire_bytes_sent_total)", said(text, "sent")), said(text, "sent"));
  const auto all = said(text, "sent");
  EXPECT_NEAR(server.ask("sum(gradwire_bytes_uncompressed_total) / sum(gradwire_bytes_sent_total)")[-1], 5.5, 2.5);
  EXPECT_EQ(server.ask("gradwire_world_size")[2], kRanks);

  // The server must accept every query of the dashboard and of the alerts.
  const json dashboard = json::parse(read_text(kDocs + "dashboard.json"));
  for (const auto& panel : dashboard.at("panels")) {
    for (const auto& target : panel.value("targets", json::array())) {
      auto query = std::regex_replace(target.at("expr").get<std::string>(), std::regex("\\$__rate_interval"), "5s");
      query = std::regex_replace(query, std::regex("\\$(job|part|rank)"), ".*");
      EXPECT_NO_THROW(static_cast<void>(server.ask(query))) << query;
    }
  }
  const auto page = http_get(port, "/metrics");
  ASSERT_TRUE(page);
  std::string own;  // the server adds some labels itself
  std::istringstream lines(*page);
  for (std::string line; std::getline(lines, line);) {
    own += line.find("exposer_") == std::string::npos ? line + "\n" : "";
  }
  std::ofstream(folder.file("page")) << own;
  const Outcome checked = run_program("promtool check metrics <'" + folder.file("page") + "'");
  EXPECT_EQ(checked.status, 0) << checked.output;
  EXPECT_EQ(checked.output, "");
  touch(folder.file("end"));
  EXPECT_EQ(job.wait(), 0) << read_text(folder.path() / "job.log");
}

TEST_F(Prometheus, SeesWhatADropInReplaced) {
  const ScratchFolder folder;
  const std::uint16_t port = free_ports(kRanks);
  const Server server(folder, port);
  Running job(mpirun("-x GRADWIRE_CODEC=int8 -x LD_PRELOAD='" GRADWIRE_DROP_IN "' -x GRADWIRE_METRICS=http:" +
                         std::to_string(port) + "+rank",
                     "'" + folder.file("end") + "' plain"),
              folder.file("job.log"));
  std::string text;
  ASSERT_TRUE(wait_until([&] {
    text = read_text(folder.path() / "job.log");
    return said(text, "in").size() == kRanks;
  })) << text;
  const std::string of_calls = "{outcome=\"compressed\",function=\"MPI_Allreduce\"}";
  EXPECT_EQ(server.wait_for("gradwire_replaced_calls_total" + of_calls, said(text, "calls")), said(text, "calls"));
  EXPECT_EQ(server.wait_for("gradwire_replaced_bytes_in_total" + of_calls, said(text, "in")), said(text, "in"));
  touch(folder.file("end"));
  EXPECT_EQ(job.wait(), 0);
  EXPECT_THAT(read_text(folder.path() / "job.log"), Not(HasSubstr("GRADWIRE_METRICS")));
}

TEST_F(Prometheus, PromtoolTakesTheDocuments) {
  const ScratchFolder folder;
  for (const std::string& file : {kDocs + "alerts.yml", kDocs + "prometheus.yml",
                                  std::string(GRADWIRE_SOURCE_DIR "/tests/systems/prometheus/alerts_test.yml")}) {
    std::filesystem::copy(file, folder.path());
  }
  for (const char* check : {"check rules alerts.yml", "check config prometheus.yml", "test rules alerts_test.yml"}) {
    const Outcome outcome = run_program("cd '" + folder.path().string() + "' && promtool " + check);
    EXPECT_EQ(outcome.status, 0) << check << ": " << outcome.output;
  }
}

}  // namespace
}  // namespace gradwire::test
