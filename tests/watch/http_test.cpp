// Tests metrics over HTTP: what is served, and at which addresses.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <thread>

#include "gradwire/session.hpp"
#include "http_children.hpp"
#include "observe/record.hpp"
#include "observe/watching.hpp"
#include "tests/support/http_get.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/scratch_folder.hpp"
#include "tests/watch/five_steps.hpp"
#include "watch/textfile.hpp"

namespace gradwire::watch {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Returns samples by name and labels.
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

// Removes samples that change all the time, or at the end of a process.
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
    run_five_steps(kRanks);
    observe::collect();
    write_whole(folder.path(), "page", page_at(port));
    std::exit(0);
  });
  ASSERT_EQ(status_of(child), 0);
  const std::string page = read_text(folder.path() / "page");
  std::map<std::string, double> served = samples_in(page);
  std::map<std::string, double> written;
  for (int rank = 0; rank < kRanks; ++rank) {
    written.merge(samples_in(read_text(folder.path() / "metrics" / file_name("library", rank, "tried"))));
  }
  drop_what_changes(served);
  drop_what_changes(written);
  EXPECT_GT(served.size(), 100U);
  EXPECT_EQ(served.size(), written.size());
  for (const auto& [name, value] : written) {
    // Pages have 16 digits, files as many as they need.
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

TEST_F(Http, NothingListensUnlessAskedAndThenOnLoopback) {
  const ScratchFolder folder;
  const std::uint16_t port = free_ports();
  const auto listens_at = [&](const std::string& metrics, bool serves) {
    const pid_t child = start_child(metrics, [&] {
      serve_rank(0);
      if (serves) {
        static_cast<void>(page_at(port));
      } else {
        while (!exists(folder.path() / file_name("library", 0, "tried"))) {
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
  EXPECT_EQ(listens_at("http:0.0.0.0:" + std::to_string(port), true), "00000000") << "the address is the given one";
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
  EXPECT_EQ(status_of(child), 0) << "nothing is recorded without a reader";
  const std::string told = read_text(folder.path() / "told");
  EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 1) << told;
  EXPECT_THAT(told, AllOf(HasSubstr("cannot listen on 127.0.0.1:" + std::to_string(port)),
                          HasSubstr("Address already in use"), HasSubstr("+rank"), HasSubstr("The job goes on")));
  ::close(taken);
}

// The files are still written.
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
  EXPECT_THAT(read_text(folder.path() / file_name("library", 0, "tried")), HasSubstr("# EOF"));
}

// Clients take a connection and say nothing. Mutation tried: the server has two threads; each is occupied for 5 s.
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
    idle.push_back(connect_to(port));  // one more than there are threads, until the first one's time is over
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    const bool later = page_at(port) != "nobody listens";
    std::_Exit(served && soon && later ? 0 : served ? 1 : 2);
  });
  EXPECT_EQ(status_of(child), 0);
}

// The server may be built without IPv6, as Debian's is.
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

}  // namespace
}  // namespace gradwire::watch
