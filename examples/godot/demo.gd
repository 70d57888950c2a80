# Submits a result, and prints the top, the player with neighbors, and changes until the player has 25 points.
extends SceneTree

var board = preload("leaderboard.gd").new()

func _initialize():
	board.url = OS.get_environment("LEADERBOARD_URL")
	board.token = OS.get_environment("LEADERBOARD_KEY")
	get_root().add_child(board)
	board.connect("top_changed", self, "_on_top_changed")
	board.connect("watch_failed", self, "_on_failure")
	var answer = yield(board.submit({"user_id": "ann/1", "points": 15, "match_id": "match-1"}), "completed")
	if not answer.ok:
		_on_failure(answer)
		return
	print("%s %d" % [answer.data.status, answer.data.new_score])
	answer = yield(board.top(2), "completed")
	_print_entries("top", answer.data.leaderboard)
	answer = yield(board.me("ann/1", 1), "completed")
	_print_entries("me", answer.data.neighbors)
	board.watch(1)

func _print_entries(name, entries):
	for entry in entries:
		print("%s: %d %s %d" % [name, entry.rank, entry.user_id, entry.score])

func _on_top_changed(top):
	_print_entries("live", top.leaderboard)
	if top.leaderboard[0].user_id == "ann/1":
		quit()
		return
	board.submit({"user_id": "ann/1", "points": 10, "match_id": "match-2"})

func _on_failure(answer):
	print("failed: %d %s" % [answer.status, answer.reason])
	OS.exit_code = 1
	quit()
