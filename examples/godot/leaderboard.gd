# A client of a leaderboard server for Godot 3. Add it to a scene as a node, or as an autoload.
extends Node

signal top_changed(top) # a page of the ranking, as in the answer of top
signal watch_failed(answer) # the watch has ended, because a new connection cannot help

const TEMPORARY = [0, 408, 429, 502, 503, 504] # statuses after which a retry can help; 0: no answer
const RETRY_FOR = 120000 # milliseconds
const SILENCE = 20000 # servers send an event at least every 15,000 milliseconds

export var url = "http://127.0.0.1:8080"
export var token = "" # or a key
export var board = "default"

var _watch = 0 # changes with each call of watch and stop_watching

# Submits a result, such as {"user_id": "ann", "points": 30, "match_id": "match-7"}. Retries send the same match_id and
# achieved_at, so the result counts once. Wait for each answer with: yield(submit(...), "completed"). An answer has ok,
# status (of HTTP), reason (of an error, such as ENTRY_NOT_FOUND) and data.
func submit(result):
	result = result.duplicate()
	if not result.get("match_id"):
		result.match_id = Crypto.new().generate_random_bytes(16).hex_encode()
	if not result.get("achieved_at"):
		result.achieved_at = _now()
	return yield(_call(HTTPClient.METHOD_POST, "/scores", to_json(result)), "completed")

# Reads the first entries: data.leaderboard.
func top(limit = 10):
	return yield(_call(HTTPClient.METHOD_GET, "/scores?limit=%d" % limit), "completed")

# Reads the entry of a user, with up to this number of neighbors on each side: data.rank, data.score, data.neighbors.
func me(user, neighbors = 2):
	return yield(_call(HTTPClient.METHOD_GET, "/scores/%s?neighbors=%d" % [user.percent_encode(), neighbors]), "completed")

# Emits top_changed now and after each change, until stop_watching. It reconnects after a break.
func watch(limit = 10):
	_watch += 1
	var id = _watch
	var delay = 0.1
	var end = OS.get_ticks_msec() + RETRY_FOR
	while true:
		var answer = yield(_stream("/watch?limit=%d" % limit, id), "completed")
		if id != _watch:
			return
		if answer.events > 0:
			delay = 0.1
			end = OS.get_ticks_msec() + RETRY_FOR
		var wait = answer.retry_after + delay * rand_range(0.5, 1)
		if not answer.status in TEMPORARY or OS.get_ticks_msec() + 1000 * wait > end:
			emit_signal("watch_failed", answer)
			return
		delay = min(2 * delay, 5)
		yield(get_tree().create_timer(wait), "timeout")
		if id != _watch:
			return

func stop_watching():
	_watch += 1

func _now():
	var ms = OS.get_system_time_msecs()
	var t = OS.get_datetime_from_unix_time(ms / 1000)
	return "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ" % [t.year, t.month, t.day, t.hour, t.minute, t.second, ms % 1000]

func _headers():
	return ["Content-Type: application/json"] + (["Authorization: Bearer " + token] if token else [])

func _path(path):
	return "/v1/boards/" + board.percent_encode() + path

func _call(method, path, body = ""):
	var end = OS.get_ticks_msec() + RETRY_FOR
	var delay = 0.1
	while true:
		var request = HTTPRequest.new()
		request.timeout = 30
		request.max_redirects = 0
		add_child(request)
		var answer = _answer(0, [], "")
		if request.request(url + _path(path), _headers(), true, method, body) == OK:
			var done = yield(request, "request_completed")
			if done[0] in [HTTPRequest.RESULT_SUCCESS, HTTPRequest.RESULT_REDIRECT_LIMIT_REACHED]:
				answer = _answer(done[1], done[2], done[3].get_string_from_utf8())
		request.queue_free()
		var wait = answer.retry_after + delay * rand_range(0.5, 1)
		delay = min(2 * delay, 5)
		if not answer.status in TEMPORARY or OS.get_ticks_msec() + 1000 * wait > end:
			return answer
		yield(get_tree().create_timer(wait), "timeout")

func _answer(status, headers, text):
	var answer = {"ok": false, "status": status, "reason": "", "data": {}, "retry_after": 0.0, "events": 0}
	for header in headers:
		if header.to_lower().begins_with("retry-after:"):
			answer.retry_after = max(0, float(header.substr(12)))
	var body = parse_json(text) if text.begins_with("{") else null # a proxy may answer with a page
	if body is Dictionary:
		answer.ok = status >= 200 and status < 300
		answer.data = body.get("data", body)
		for detail in body.get("details", []):
			answer.reason = detail.get("reason", answer.reason)
	return answer

# Reads events until the connection or the watch ends. The answer has the number of events.
func _stream(path, id):
	var parts = url.split("://")
	var host = parts[1].split(":")
	var http = HTTPClient.new()
	http.connect_to_host(host[0], int(host[1]) if host.size() > 1 else -1, parts[0] == "https")
	var events = 0
	var retry_after = 0.0
	var bytes = PoolByteArray()
	var requested = false
	var heard = OS.get_ticks_msec()
	while id == _watch and retry_after == 0 and OS.get_ticks_msec() < heard + SILENCE:
		yield(get_tree(), "idle_frame")
		http.poll()
		var status = http.get_status()
		if status == HTTPClient.STATUS_CONNECTED and not requested:
			requested = true
			http.request(HTTPClient.METHOD_GET, _path(path), _headers())
		elif status == HTTPClient.STATUS_BODY:
			var chunk = http.read_response_body_chunk()
			if chunk.size() == 0:
				continue
			heard = OS.get_ticks_msec()
			bytes.append_array(chunk)
			var last = bytes.size() - 1
			if http.get_response_code() != 200 or last < 1 or bytes[last] != 10 or bytes[last - 1] != 10: # events end with two line feeds
				continue
			var lines = bytes.get_string_from_utf8().split("\n", false)
			bytes.resize(0)
			var ending = false
			for line in lines:
				# The server ends the stream with an event that has a name. If the cause lasts, the next connection has an error status.
				if line.begins_with("event: "):
					ending = true
					retry_after = 0.1
				elif line.begins_with("retry: "):
					retry_after = float(line.substr(7)) / 1000
				elif line.begins_with("data: ") and not ending and id == _watch:
					events += 1
					emit_signal("top_changed", parse_json(line.substr(6)))
		elif not status in [HTTPClient.STATUS_RESOLVING, HTTPClient.STATUS_CONNECTING, HTTPClient.STATUS_REQUESTING]:
			break
	var code = http.get_response_code() if http.has_response() else 0
	var answer = _answer(0 if code == 200 else code, http.get_response_headers(), bytes.get_string_from_utf8())
	answer.events = events
	answer.retry_after = max(answer.retry_after, retry_after)
	return answer
