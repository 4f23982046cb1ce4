// libgradwire_export.so: prometheus-cpp's HTTP server behind a table of C functions (watch/http_table.hpp).
#include <arpa/inet.h>
#include <dirent.h>
#include <netdb.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <CivetServer.h>
#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <prometheus/metric_family.h>

#include "base/constant_time.hpp"
#include "watch/http_table.hpp"

namespace {

using gradwire::watch::CollectFamilies;
using gradwire::watch::ExportTable;
using gradwire::watch::kAddress;
using gradwire::watch::kExportVersion;
using gradwire::watch::PlainFamily;
using gradwire::watch::PlainSample;
using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

ClientMetric metric_of(const PlainSample& sample, MetricType type) {
  ClientMetric metric;
  for (std::size_t i = 0; i < sample.label_count; ++i) {
    metric.label.push_back({sample.labels[i].name, sample.labels[i].value});
  }
  if (type == MetricType::Histogram) {
    metric.histogram.sample_count = sample.count;
    metric.histogram.sample_sum = sample.value;
    for (std::size_t i = 0; i < sample.bound_count; ++i) {
      metric.histogram.bucket.push_back({sample.below[i], sample.bounds[i]});
    }
  } else if (type == MetricType::Counter) {
    metric.counter.value = sample.value;
  } else {
    metric.gauge.value = sample.value;
  }
  return metric;
}

// Adds a family to a page; without memory the page lacks it.
void add_to(void* page, const PlainFamily* family) noexcept {
  try {
    MetricFamily made;
    made.name = family->name;
    made.help = family->help;
    made.type = family->type == 2 ? MetricType::Histogram : family->type == 0 ? MetricType::Counter : MetricType::Gauge;
    for (std::size_t i = 0; i < family->sample_count; ++i) {
      made.metric.push_back(metric_of(family->samples[i], made.type));
    }
    static_cast<std::vector<MetricFamily>*>(page)->push_back(std::move(made));
  } catch (...) {  // NOLINT(bugprone-empty-catch): no memory
  }
}

// A client that connects and sends nothing holds a thread until the limit; other clients get other threads meanwhile.
constexpr int kThreads = 6;
constexpr const char* kRequestLimit = "2000";  // ms
constexpr const char* kMostBytes = "8192";     // in the head of a request

class Page final : public prometheus::Collectable {
 public:
  Page(CollectFamilies collect, void* context) : collect_(collect), context_(context) {}
  [[nodiscard]] std::vector<MetricFamily> Collect() const override {
    std::vector<MetricFamily> families;
    collect_(context_, &families, &add_to);
    return families;
  }

 private:
  CollectFamilies collect_;
  void* context_;
};

// The token that requests need; empty: none. It is set before the first server starts, and never again: a second server
// of this process belongs to another part of the same job, which has the same environment.
std::string& token() {
  static auto* const text = new std::string;  // NOLINT(cppcoreguidelines-owning-memory): never destroyed
  return *text;
}

int refuse_request(mg_connection* client, int status, const char* reason, const char* header, const std::string& why) {
  mg_printf(client,
            "HTTP/1.1 %d %s\r\n%sContent-Type: text/plain; charset=utf-8\r\nContent-Length: %zu\r\n"
            "Connection: close\r\n\r\n%s",
            status, reason, header, why.size(), why.c_str());
  return status;
}

// Whether the request has the token, in exactly one header.
bool is_authorized(const mg_request_info& request) {
  constexpr std::string_view kScheme = "bearer ";
  const mg_header* found = nullptr;
  for (int i = 0; i < request.num_headers; ++i) {
    const mg_header& header = request.http_headers[i];
    if (::strcasecmp(header.name, "Authorization") == 0) {
      if (found != nullptr) {
        return false;
      }
      found = &header;
    }
  }
  return found != nullptr && ::strncasecmp(found->value, kScheme.data(), kScheme.size()) == 0 &&
         gradwire::equals_secret(std::string_view(found->value).substr(kScheme.size()), token());
}

// Refuses requests without the token, and all that are no plain request for metrics, before the server does anything
// with them. Returns 0 for the others, which the server then answers.
int check_request(mg_connection* client) noexcept {
  try {
    const mg_request_info& request = *mg_get_request_info(client);
    if (request.content_length > 0 || mg_get_header(client, "Transfer-Encoding") != nullptr) {
      // This function of the server ends the connection. Otherwise the server would read all of the body to throw it
      // away, and wait 2 s for each byte.
      mg_send_http_error(client, 413, "%s", "A request for metrics has no body.");
      return 413;
    }
    if (!token().empty() && !is_authorized(request)) {
      return refuse_request(
          client, 401, "Unauthorized", "WWW-Authenticate: Bearer realm=\"gradwire\"\r\n",
          "These metrics need the token in the file that the job's GRADWIRE_METRICS_TOKEN names: send "
          "the header Authorization: Bearer TOKEN.\n");
    }
    const std::string_view method = request.request_method;
    if (method != "GET" && method != "HEAD") {
      return refuse_request(client, 405, "Method Not Allowed", "Allow: GET, HEAD\r\n", "Metrics can only be read.\n");
    }
    if (request.local_uri == nullptr || std::string_view(request.local_uri) != "/metrics") {
      return refuse_request(client, 404, "Not Found", "", "There is /metrics, and nothing else.\n");
    }
    return 0;
  } catch (...) {  // without memory
    return 500;
  }
}

// Never destroyed, since ending its threads takes seconds, and the end of the process ends them anyway.
struct Server {
  std::unique_ptr<prometheus::Exposer> exposer;
  std::shared_ptr<Page> page;
};
std::vector<Server>& servers() {
  static auto* const all = new std::vector<Server>;  // NOLINT(cppcoreguidelines-owning-memory)
  return *all;
}

// The listening socket, which a forked child closes: it has none of the threads, and would keep the port in use after
// its parent's end.
std::atomic<int> g_listening{-1};

void in_child() noexcept {
  if (const int descriptor = g_listening.exchange(-1); descriptor >= 0) {
    ::close(descriptor);
  }
}

struct FreesAddress {
  void operator()(addrinfo* found) const noexcept { ::freeaddrinfo(found); }
};
using Address = std::unique_ptr<addrinfo, FreesAddress>;

// The address in "1.2.3.4:5" or "[::1]:5"; `why` gets the reason where there is none.
Address parsed(const std::string& text, std::string* why = nullptr) {
  const std::size_t colon = text.rfind(':');
  const bool brackets = text.front() == '[';
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(text.substr(brackets ? 1 : 0, colon - (brackets ? 2 : 0)).c_str(),
                                  text.c_str() + colon + 1, &hints, &found);
  if (error != 0 && why != nullptr) {
    *why = ::gai_strerror(error);
  }
  return Address(error == 0 ? found : nullptr);
}

bool same(const sockaddr_storage& one, const sockaddr* other) {
  if (one.ss_family != other->sa_family) {
    return false;
  }
  if (one.ss_family == AF_INET6) {
    const auto& a = reinterpret_cast<const sockaddr_in6&>(one);
    const auto* b = reinterpret_cast<const sockaddr_in6*>(other);
    return a.sin6_port == b->sin6_port && IN6_ARE_ADDR_EQUAL(&a.sin6_addr, &b->sin6_addr);
  }
  const auto& a = reinterpret_cast<const sockaddr_in&>(one);
  const auto* b = reinterpret_cast<const sockaddr_in*>(other);
  return a.sin_port == b->sin_port && a.sin_addr.s_addr == b->sin_addr.s_addr;
}

// The sockets that listen at the address.
std::vector<int> listening_at(const addrinfo* wanted) {
  std::vector<int> found;
  DIR* const folder = wanted == nullptr ? nullptr : ::opendir("/proc/self/fd");
  if (folder == nullptr) {
    return found;
  }
  while (const dirent* entry = ::readdir(folder)) {   // NOLINT(concurrency-mt-unsafe): a folder of this thread
    const int descriptor = std::atoi(entry->d_name);  // NOLINT(cert-err34-c): 0 for "."
    int listens = 0;
    socklen_t size = sizeof listens;
    sockaddr_storage address{};
    socklen_t address_size = sizeof address;
    if (entry->d_name[0] != '.' && ::getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 &&
        listens != 0 && ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &address_size) == 0 &&
        same(address, wanted->ai_addr)) {
      found.push_back(descriptor);
    }
  }
  ::closedir(folder);
  return found;
}

struct Reason {
  std::string text;
  bool address = false;  // no port of the address can be used
};

// The reason why listening failed; the server only says that it failed.
Reason why_not(const std::string& address) {
  std::string why;
  const Address found = parsed(address, &why);
  if (!found) {
    return {why, true};
  }
  if (found->ai_family == AF_INET6 && mg_check_feature(MG_FEATURES_IPV6) == 0) {
    return {"this machine's HTTP server (civetweb) is built without IPv6", true};
  }
  const int trial = ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  ::setsockopt(trial, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  const bool bound = trial >= 0 && ::bind(trial, found->ai_addr, found->ai_addrlen) == 0 && ::listen(trial, 1) == 0;
  const int number = errno;
  if (trial >= 0) {
    ::close(trial);
  }
  if (bound) {
    return {"the HTTP server did not start"};
  }
  return {std::generic_category().message(number), number == EADDRNOTAVAIL || number == EAFNOSUPPORT};
}

// Number of started threads. Each thread of the server makes the whole process ignore SIGPIPE when it starts, and then
// counts itself here.
std::atomic<int> g_started{0};
void* count_started(const mg_context* /*server*/, int /*kind*/) noexcept {
  ++g_started;
  return nullptr;
}

void wait_for_threads() {
  for (int i = 0; i < 1000 && g_started < kThreads + 1; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void start(const std::string& address, const std::string& secret, CollectFamilies collect, void* context) {
  std::vector<std::string> options{"listening_ports",    address,       "num_threads",       std::to_string(kThreads),
                                   "request_timeout_ms", kRequestLimit, "enable_keep_alive", "no",
                                   "max_request_size",   kMostBytes};
  if (servers().empty()) {
    token() = secret;
  } else if (token() != secret) {
    throw std::runtime_error("this process serves metrics with another token");
  }
  static CivetCallbacks callbacks;
  callbacks.init_thread = &count_started;
  callbacks.begin_request = &check_request;
  g_started = 0;
  const Address listens = parsed(address);
  const std::vector<int> jobs = listening_at(listens.get());  // the job's own sockets, which may share the port
  Server server{std::make_unique<prometheus::Exposer>(std::move(options), &callbacks),
                std::make_shared<Page>(collect, context)};
  wait_for_threads();
  server.exposer->RegisterCollectable(server.page);
  for (const int descriptor : listening_at(listens.get())) {
    if (std::find(jobs.begin(), jobs.end(), descriptor) == jobs.end()) {
      g_listening = descriptor;
    }
  }
  static const int registered = ::pthread_atfork(nullptr, nullptr, &in_child);
  static_cast<void>(registered);
  servers().push_back(std::move(server));
}

// Whether the handler is the one that civetweb sets: no flags, nothing masked. A handler that another thread of the job
// sets meanwhile by signal(), or by sigaction() with a flag, stays. Two cases remain: SIG_IGN set by sigaction()
// without flags looks the same and is taken back, and a handler set before the last thread of the server has started is
// overwritten by that thread.
bool is_the_servers(const struct sigaction& now) noexcept {
  if (now.sa_handler != SIG_IGN || (now.sa_flags & (SA_RESTART | SA_SIGINFO | SA_NODEFER | SA_NOCLDSTOP)) != 0) {
    return false;
  }
  for (const int signal : {SIGPIPE, SIGINT, SIGTERM}) {
    if (sigismember(&now.sa_mask, signal) == 1) {
      return false;
    }
  }
  return true;
}

int serve(const char* address, const char* secret, CollectFamilies collect, void* context, char* why,
          std::size_t why_bytes) noexcept {
  // The server's threads handle no signal of the job, and the job's handling of SIGPIPE stays.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  struct sigaction pipe {};
  ::sigaction(SIGPIPE, nullptr, &pipe);
  int result = 0;
  try {
    start(address, secret, collect, context);
  } catch (...) {
    result = 1;
  }
  struct sigaction now {};
  ::sigaction(SIGPIPE, nullptr, &now);
  if (is_the_servers(now) && pipe.sa_handler != SIG_IGN) {
    ::sigaction(SIGPIPE, &pipe, nullptr);
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (result != 0) {
    try {
      const Reason reason = why_not(address);
      std::snprintf(why, why_bytes, "%s", reason.text.c_str());
      result = reason.address ? kAddress : result;
    } catch (...) {
      std::snprintf(why, why_bytes, "no memory");
    }
  }
  return result;
}

constexpr ExportTable kTable{kExportVersion, &serve};

}  // namespace

extern "C" __attribute__((visibility("default"))) const ExportTable* gradwire_export_functions() { return &kTable; }
