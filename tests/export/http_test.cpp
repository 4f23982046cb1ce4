// Metrics over HTTP: what is served, where, and what becomes of the server.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <thread>

#include "export/exporting.hpp"
#include "export/textfile.hpp"
#include "gradwire/session.hpp"
#include "observe/record.hpp"
#include "tests/support/http_get.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/scratch_folder.hpp"

namespace {
// What the job does on another thread while the server starts, here by the moment: at this process's second look at
// SIGPIPE.
std::atomic<int> g_looks_at_pipe{0};
void (*g_at_second_look)() = nullptr;
}  // namespace

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
constexpr bool kSeesLooks = true;
// In place of that of the C library, for all in this process.
extern "C" int sigaction(int number, const struct sigaction* next, struct sigaction* before) noexcept {
  static const auto real = reinterpret_cast<decltype(&sigaction)>(::dlsym(RTLD_NEXT, "sigaction"));
  if (number == SIGPIPE && next == nullptr && ++g_looks_at_pipe == 2 && g_at_second_look != nullptr) {
    g_at_second_look();
  }
  return real(number, next, before);
}
#else
constexpr bool kSeesLooks = false;
#endif

namespace gradwire::metrics {
namespace {

using gradwire::test::connect_to;
using gradwire::test::free_ports;
using gradwire::test::http_get;
using gradwire::test::listen_on;
using gradwire::test::read_text;
using gradwire::test::ScratchFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

#if defined(__SANITIZE_THREAD__)
constexpr bool kThreadSanitizer = true;
#else
constexpr bool kThreadSanitizer = false;
#endif

class Http : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kThreadSanitizer) {
      GTEST_SKIP() << "it allows no threads in a child of a process with threads";
    }
  }
};

// What begins once a process needs one for each test.
template <typename Body>
pid_t start_child(const std::string& metrics, Body&& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    ::setenv("GRADWIRE_METRICS", metrics.c_str(), 1);
    body();
    std::_Exit(99);
  }
  return child;
}

int status_of(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string page_at(std::uint16_t port) {
  for (int i = 0; i < 1000; ++i) {
    if (const auto page = http_get(port, "/metrics"); page && page->find("gradwire_info") != std::string::npos) {
      return *page;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return "nobody listens";
}

void serve_rank(int rank, std::string* told = nullptr) {
  export_from_environment(
      {.of = {.rank = [rank] { return std::optional(rank); }}, .warn = [told](const std::string& text) {
         if (told != nullptr) {
           *told += text + "\n";
         }
       }});
}

std::string http(std::uint16_t port, const std::string& behind = "") { return "http:" + std::to_string(port) + behind; }

// Samples by name and labels.
std::map<std::string, double> samples_in(const std::string& text) {
  std::map<std::string, double> samples;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t blank = line.rfind(' ');
    if (line.starts_with("gradwire_") && blank != std::string::npos) {
      EXPECT_TRUE(samples.emplace(line.substr(0, blank), std::stod(line.substr(blank + 1))).second) << line;
    }
  }
  return samples;
}

// Which differ with the moment, and when a process ends.
void drop_what_changes(std::map<std::string, double>& samples) {
  std::erase_if(samples, [](const auto& sample) {
    return sample.first.starts_with("gradwire_observer_cpu") || sample.first.starts_with("gradwire_job_ended") ||
           sample.first.find("kind=\"rings\"") != std::string::npos;
  });
}

TEST_F(Http, ServesWhatTheFilesSay) {
  const ScratchFolder folder;
  constexpr int kRanks = 4;
  const std::uint16_t port = free_ports();
  const pid_t child = start_child("file:" + folder.file("metrics") + "," + http(port, "+rank"), [&] {
    gradwire::test::run_ranks(kRanks, [&](const std::shared_ptr<Transport>& transport) {
      std::vector<float> values(100'000, 1.0F);
      Session session(transport, Policy::uniform("int8"));
      const TensorId id = session.add("values", {values.data(), values.size(), DType::f32});
      for (int step = 0; step < 5; ++step) {
        session.ready(id);
        session.finish();
      }
    });
    observe::collect();
    write_whole(folder.path(), "page", page_at(port));
    std::exit(0);
  });
  ASSERT_EQ(status_of(child), 0);
  const std::string page = read_text(folder.path() / "page");
  std::map<std::string, double> served = samples_in(page);
  std::map<std::string, double> written;
  for (int rank = 0; rank < kRanks; ++rank) {
    written.merge(samples_in(read_text(folder.path() / "metrics" / file_name("library", rank))));
  }
  drop_what_changes(served);
  drop_what_changes(written);
  EXPECT_GT(served.size(), 100U);
  EXPECT_EQ(served.size(), written.size());
  for (const auto& [name, value] : written) {
    // Pages have 16 digits, files as many as it takes.
    EXPECT_NEAR(served.contains(name) ? served.at(name) : -1, value, 1e-15 * value) << name;
  }
  std::set<std::string> types;
  const std::regex type("# TYPE (\\S+)");
  for (std::sregex_iterator match(page.begin(), page.end(), type), end; match != end; ++match) {
    EXPECT_TRUE(types.insert((*match)[1]).second) << (*match)[1] << " comes twice";
  }
}

TEST_F(Http, ThePortOfARank) {
  const std::uint16_t port = free_ports(4);
  const pid_t child = start_child(http(port, "+rank"), [&] {
    serve_rank(3);
    std::_Exit(page_at(static_cast<std::uint16_t>(port + 3)).find("rank=\"3\"") != std::string::npos &&
                       connect_to(port) < 0
                   ? 0
                   : 1);
  });
  EXPECT_EQ(status_of(child), 0);
}

// Local addresses of all sockets of this process that listen, as the kernel writes them.
std::vector<std::string> listening() {
  std::set<std::string> own;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    own.insert(std::filesystem::read_symlink(entry.path(), gone).string());
  }
  std::vector<std::string> addresses;
  for (const char* file : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream lines(file);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::vector<std::string> word;
      for (std::string each; words >> each;) {
        word.push_back(each);
      }
      constexpr const char* kListens = "0A";
      if (word.size() > 9 && word[3] == kListens && own.contains("socket:[" + word[9] + "]")) {
        addresses.push_back(word[1].substr(0, word[1].find(':')));
      }
    }
  }
  return addresses;
}

TEST_F(Http, NothingListensUnlessAskedAndThenOnLoopback) {
  const ScratchFolder folder;
  const std::uint16_t port = free_ports();
  const auto listens_at = [&](const std::string& metrics, bool serves) {
    const pid_t child = start_child(metrics, [&] {
      serve_rank(0);
      if (serves) {
        static_cast<void>(page_at(port));
      } else {
        while (!exists(folder.path() / file_name("library", 0))) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
      }
      std::string text;
      for (const std::string& address : listening()) {
        text += address;
      }
      write_whole(folder.path(), "listening", text);
      std::_Exit(0);
    });
    EXPECT_EQ(status_of(child), 0);
    return read_text(folder.path() / "listening");
  };
  EXPECT_EQ(listens_at("file:" + folder.path().string(), false), "");
  EXPECT_EQ(listens_at(http(port), true), "0100007F") << "127.0.0.1 alone";
  EXPECT_EQ(listens_at("http:0.0.0.0:" + std::to_string(port), true), "00000000") << "where it is written";
}

TEST_F(Http, APortThatIsTakenIsOneWarning) {
  const ScratchFolder folder;
  const int taken = listen_on(0);
  const std::uint16_t port = gradwire::test::port_of(taken);
  const pid_t child = start_child(http(port), [&] {
    std::string told;
    for (int i = 0; i < 2; ++i) {
      serve_rank(0, &told);
      observe::collect();
      observe::collect();
    }
    const bool still = observe::on();
    write_whole(folder.path(), "told", told);
    std::_Exit(still ? 1 : 0);
  });
  EXPECT_EQ(status_of(child), 0) << "nothing is recorded for nobody";
  const std::string told = read_text(folder.path() / "told");
  EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 1) << told;
  EXPECT_THAT(told, AllOf(HasSubstr("cannot listen on 127.0.0.1:" + std::to_string(port)),
                          HasSubstr("Address already in use"), HasSubstr("+rank"), HasSubstr("The job goes on")));
  ::close(taken);
}

// The files are written all the same.
TEST_F(Http, WithoutAPortTheFilesAreWritten) {
  const ScratchFolder folder;
  const pid_t child = start_child("file:" + folder.path().string() + ",http:192.0.2.1:9464", [&] {
    std::string told;
    serve_rank(0, &told);
    observe::collect();
    observe::stop_collecting();
    write_whole(folder.path(), "told", told);
    std::_Exit(0);
  });
  EXPECT_EQ(status_of(child), 0);
  EXPECT_THAT(read_text(folder.path() / "told"),
              AllOf(HasSubstr("cannot listen on 192.0.2.1:9464: Cannot assign requested"),
                    HasSubstr("write an IPv4 address of this machine"), Not(HasSubstr("another port"))));
  EXPECT_THAT(read_text(folder.path() / file_name("library", 0)), HasSubstr("# EOF"));
}

// Clients that take a connection and say nothing. Seen red where the server has two threads: each is one's for 5 s.
TEST_F(Http, IdleClientsKeepNobodyWaiting) {
  const std::uint16_t port = free_ports();
  const pid_t child = start_child(http(port), [&] {
    serve_rank(0);
    observe::collect();
    std::vector<int> idle;
    for (int i = 0; i < 5; ++i) {
      idle.push_back(connect_to(port));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    const auto begin = std::chrono::steady_clock::now();
    const bool served = page_at(port) != "nobody listens";
    const bool soon = std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(1500);
    idle.push_back(connect_to(port));  // one more than threads: until the first has had its time
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    const bool later = page_at(port) != "nobody listens";
    std::_Exit(served && soon && later ? 0 : served ? 1 : 2);
  });
  EXPECT_EQ(status_of(child), 0);
}

// Where the server can. Debian's is built without IPv6.
TEST_F(Http, AnAddressOfIpv6IsServedOrSaysWhyNot) {
  const ScratchFolder folder;
  const std::uint16_t port = free_ports();
  const pid_t child = start_child("http:[::1]:" + std::to_string(port), [&] {
    std::string told;
    serve_rank(0, &told);
    observe::collect();
    const std::vector<std::string> all = listening();
    write_whole(folder.path(), "told", told + (all.empty() ? "" : all[0]));
    std::_Exit(0);
  });
  ASSERT_EQ(status_of(child), 0);
  const std::string told = read_text(folder.path() / "told");
  if (told != "00000000000000000000000001000000") {
    EXPECT_THAT(told, AllOf(HasSubstr("cannot listen on [::1]:"), HasSubstr("without IPv6"), HasSubstr("127.0.0.1"),
                            Not(HasSubstr("another port"))));
  }
}

// Whatever the parent's threads did at that moment, and however long the child lives.
TEST_F(Http, AChildThatForksOffServesNothing) {
  const std::uint16_t port = free_ports();
  int says[2];
  int lives[2];  // as long as this process has it open
  ASSERT_EQ(::pipe(says) + ::pipe(lives), 0);
  const pid_t parent = start_child(http(port), [&] {
    serve_rank(0);
    if (page_at(port).find("gradwire_info") == std::string::npos) {
      std::_Exit(1);
    }
    const pid_t grandchild = ::fork();
    if (grandchild == 0) {
      ::alarm(60);
      char byte = listening().empty() ? 'y' : 'n';
      static_cast<void>(::write(says[1], &byte, 1));
      ::close(lives[1]);
      static_cast<void>(::read(lives[0], &byte, 1));
      std::_Exit(0);
    }
    std::_Exit(grandchild > 0 ? 0 : 2);
  });
  ::close(says[1]);
  EXPECT_EQ(status_of(parent), 0);
  char result = 0;
  EXPECT_EQ(::read(says[0], &result, 1), 1);
  EXPECT_EQ(result, 'y');
  const int again = listen_on(port);
  EXPECT_GE(again, 0) << "the child keeps the port";
  for (const int descriptor : {again, says[0], lives[0], lives[1]}) {
    ::close(descriptor);
  }
}

// The job may listen on the same port of another address.
TEST_F(Http, AChildThatForksOffKeepsTheJobsSockets) {
  const std::uint16_t port = free_ports();
  const pid_t parent = start_child(http(port), [&] {
    sockaddr_in other{};
    other.sin_family = AF_INET;
    other.sin_port = htons(port);
    other.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
    const int jobs = ::socket(AF_INET, SOCK_STREAM, 0);
    constexpr int kHigh = 300;  // the server's comes before it
    if (::bind(jobs, reinterpret_cast<sockaddr*>(&other), sizeof other) != 0 || ::listen(jobs, 1) != 0 ||
        ::dup2(jobs, kHigh) != kHigh) {
      std::_Exit(1);
    }
    ::close(jobs);
    serve_rank(0);
    if (page_at(port).find("gradwire_info") == std::string::npos) {
      std::_Exit(2);
    }
    const pid_t grandchild = ::fork();
    if (grandchild == 0) {
      std::_Exit(listening() == std::vector<std::string>{"0200007F"} ? 0 : 3);
    }
    std::_Exit(status_of(grandchild));
  });
  EXPECT_EQ(status_of(parent), 0);
}

// A client that says nothing, or reads nothing, keeps a thread of the server.
TEST_F(Http, ClientsThatHangKeepNoProcessFromItsEnd) {
  const std::uint16_t port = free_ports();
  const pid_t child = start_child(http(port), [&] {
    serve_rank(0);
    static_cast<void>(page_at(port));
    for (int i = 0; i < 4; ++i) {
      static_cast<void>(connect_to(port));
    }
    const int half = connect_to(port);
    static_cast<void>(::send(half, "GET /metrics HTTP/1.0\r\n", 23, MSG_NOSIGNAL));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    std::exit(0);
  });
  while (connect_to(port) < 0) {
  }
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(status_of(child), 0);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(1500));
}

TEST_F(Http, SignalsStayTheJobs) {
  const std::uint16_t port = free_ports();
  const pid_t child = start_child(http(port), [&] {
    serve_rank(0);
    static_cast<void>(page_at(port));
    // The server ignores it for all the process when it starts, and that is taken back.
    struct sigaction pipe {};
    for (int i = 0; i < 1000 && (i == 0 || pipe.sa_handler != SIG_DFL); ++i) {
      ::sigaction(SIGPIPE, nullptr, &pipe);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (pipe.sa_handler != SIG_DFL) {
      std::_Exit(1);
    }
    for (int i = 0; i < 20; ++i) {  // gone before the answer
      const int client = connect_to(port);
      static_cast<void>(::send(client, "GET /metrics HTTP/1.0\r\n\r\n", 25, MSG_NOSIGNAL));
      const linger now{1, 0};
      ::setsockopt(client, SOL_SOCKET, SO_LINGER, &now, sizeof now);
      ::close(client);
    }
    std::_Exit(page_at(port).find("gradwire_info") != std::string::npos ? 0 : 2);
  });
  EXPECT_EQ(status_of(child), 0);
}

TEST_F(Http, WhatTheJobSetsWhileTheServerStartsStays) {
  if (!kSeesLooks) {
    GTEST_SKIP() << "the sanitizer has this function";
  }
  const std::uint16_t port = free_ports();
  const pid_t child = start_child(http(port), [&] {
    g_looks_at_pipe = 0;
    g_at_second_look = [] { ::signal(SIGPIPE, SIG_IGN); };
    serve_rank(0);
    static_cast<void>(page_at(port));
    for (int i = 0; i < 1000 && g_looks_at_pipe < 2; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    struct sigaction pipe {};
    const int looks = g_looks_at_pipe;
    ::sigaction(SIGPIPE, nullptr, &pipe);
    std::_Exit(looks < 2 ? 1 : pipe.sa_handler != SIG_IGN ? 2 : 0);
  });
  EXPECT_EQ(status_of(child), 0);
}

}  // namespace
}  // namespace gradwire::metrics
