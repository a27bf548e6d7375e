"""Definitions of tools for `bench/tools.py`: those of the recorded agents, and those of made-up
services.

A definition is a line: the name, what it does, and its parameters. `make_definition` makes about
300 tokens of it: parameters are described, and sentences that fit any tool follow.
"""

import json
import random
from functools import cache

from loom.budget.counting import gate_counter
from loom.conversation.message import Tool

TOKENS = 300  # of each definition, about

# (what it does, parameters with what they are)
Definition = tuple[str, str, dict[str, str]]


def _table(*rows: Definition) -> dict[str, Definition]:
    return {row[0]: row for row in rows}


_RESERVATION = "The id of the reservation, such as 'ZFA04Y'."
_PAYMENT = "The payment id stored in the user profile, such as 'credit_card_7815826'."
_FLIGHTS = "A list of flights, each with flight number and date."
_TRIP = {
    "origin": "The origin city or airport as a three letter code, such as 'JFK'.",
    "destination": "The destination city or airport as a three letter code, such as 'LAX'.",
    "date": "The date of the flight in the format YYYY-MM-DD.",
}

AGENT_TOOLS: dict[str, dict[str, Definition]] = {
    "airline": _table(
        (
            "book_reservation",
            "Book a flight reservation for a user.",
            {
                "user_id": "The id of the user who books the reservation.",
                "origin": _TRIP["origin"],
                "destination": _TRIP["destination"],
                "flight_type": "One way or round trip.",
                "cabin": "The cabin class of all flights.",
                "flights": _FLIGHTS,
                "passengers": "The passengers, each with first name, last name and date of birth.",
                "payment_methods": "The payment methods, each with payment id and amount.",
                "total_baggages": "The total number of baggage items.",
                "nonfree_baggages": "The number of baggage items that are not free.",
                "insurance": "Whether travel insurance is bought.",
            },
        ),
        (
            "calculate",
            "Calculate the result of a mathematical expression.",
            {"expression": "The expression, with numbers, operators and parentheses."},
        ),
        (
            "cancel_reservation",
            "Cancel the whole reservation.",
            {"reservation_id": _RESERVATION},
        ),
        (
            "get_reservation_details",
            "Get the details of a reservation.",
            {"reservation_id": _RESERVATION},
        ),
        (
            "get_user_details",
            "Get the details of a user, including their reservations.",
            {"user_id": "The id of the user, such as 'sara_doe_496'."},
        ),
        ("list_all_airports", "List all airports and their cities.", {}),
        (
            "search_direct_flight",
            "Search direct flights between two cities on a specific date.",
            _TRIP,
        ),
        (
            "search_onestop_flight",
            "Search flights with one stop between two cities on a specific date.",
            _TRIP,
        ),
        (
            "send_certificate",
            "Send a certificate to a user as compensation. Be careful!",
            {"user_id": "The id of the user.", "amount": "The amount of the certificate."},
        ),
        (
            "think",
            "Use this to think about something when complex reasoning is needed.",
            {"thought": "A thought to think about."},
        ),
        (
            "transfer_to_human_agents",
            "Transfer the user to a human agent, with a summary of the issue.",
            {"summary": "A summary of the issue of the user."},
        ),
        (
            "update_reservation_baggages",
            "Update the baggage information of a reservation.",
            {
                "reservation_id": _RESERVATION,
                "total_baggages": "The new total number of baggage items.",
                "nonfree_baggages": "The new number of baggage items that are not free.",
                "payment_id": _PAYMENT,
            },
        ),
        (
            "update_reservation_flights",
            "Update the flight information of a reservation.",
            {
                "reservation_id": _RESERVATION,
                "cabin": "The cabin class of the reservation.",
                "flights": _FLIGHTS,
                "payment_id": _PAYMENT,
            },
        ),
        (
            "update_reservation_passengers",
            "Update the passenger information of a reservation.",
            {"reservation_id": _RESERVATION, "passengers": "All passengers of the reservation."},
        ),
    ),
    "pi": _table(
        (
            "bash",
            "Execute a bash command in the current working directory.",
            {"command": "Bash command to execute.", "timeout": "Timeout in seconds."},
        ),
        (
            "read",
            "Read the contents of a file.",
            {
                "path": "Path to the file to read.",
                "offset": "Line to start reading from.",
                "limit": "Maximum number of lines.",
            },
        ),
        (
            "edit",
            "Edit a file by replacing exact text.",
            {
                "path": "Path to the file to edit.",
                "oldText": "Exact text to find.",
                "newText": "New text to replace it with.",
            },
        ),
        (
            "write",
            "Write content to a file, and create it if it does not exist.",
            {"path": "Path to the file to write.", "content": "Content to write."},
        ),
    ),
    "trail": _table(
        (
            "python_interpreter",
            "Run Python code and return what it prints.",
            {"code": "The code to run in the interpreter."},
        ),
        (
            "web_search",
            "Search the web and return the top results.",
            {"query": "The search query to perform."},
        ),
        ("visit_page", "Visit a webpage at a given URL and return its text.", {"url": "The URL."}),
        ("page_down", "Scroll down one page in the viewport and return its new content.", {}),
        ("page_up", "Scroll up one page in the viewport and return its new content.", {}),
        (
            "find_on_page_ctrl_f",
            "Scroll the viewport to the first occurrence of the search string, like Ctrl+F.",
            {"search_string": "The string to search for on the page."},
        ),
        (
            "find_next",
            "Scroll the viewport to the next occurrence of the search string.",
            {},
        ),
        (
            "final_answer",
            "Provide a final answer to the given problem.",
            {"answer": "The final answer to the problem."},
        ),
    ),
    "sweagent": _table(
        (
            "bash",
            "Run the given command directly in bash.",
            {"command": "The bash command to execute."},
        ),
        (
            "find_file",
            "Find all files with a given name or pattern in a directory.",
            {"file_name": "The name of the file or pattern.", "dir": "The directory to search in."},
        ),
        (
            "open",
            "Open the file at the given path in the editor.",
            {"path": "The path to the file to open.", "line_number": "The line to move to."},
        ),
        (
            "edit",
            "Replace lines of the open file with the given text.",
            {
                "start_line": "The line to start the edit at.",
                "end_line": "The line to end the edit at.",
                "replacement_text": "The text to replace the lines with.",
            },
        ),
        ("submit", "Submit the current file changes and end the session.", {}),
        ("scroll_down", "Move the window down by one page of lines.", {}),
        (
            "search_dir",
            "Search for a term in all files of a directory.",
            {"search_term": "The term to search for.", "dir": "The directory to search in."},
        ),
    ),
}

# Service, how its tools are named, nouns. Half of the services are near to what the agents do.
_SERVICES: tuple[tuple[str, str, str], ...] = (
    ("hotel", "plain", "hotel_room hotel_booking guest_profile rate_plan housekeeping_task"),
    ("rail", "plain", "train_ticket train_timetable seat_reservation rail_pass platform"),
    ("rental", "plain", "rental_car pickup_location rental_agreement driver vehicle_class"),
    ("cruise", "plain", "cruise_cabin cruise_itinerary shore_excursion boarding_pass"),
    ("flightstatus", "mcp", "flight_status departure_board aircraft_position gate_change delay"),
    ("loyalty", "plain", "loyalty_account reward_points tier_status voucher"),
    ("shop", "plain", "order order_item product cart return_request shipping_address"),
    ("payments", "mcp", "payment refund invoice payment_method dispute payout subscription"),
    ("crm", "mcp", "customer contact deal lead account_note pipeline_stage"),
    ("support", "mcp", "ticket ticket_comment macro agent_queue satisfaction_survey"),
    ("insurance", "plain", "policy claim premium coverage beneficiary"),
    ("taxi", "plain", "ride ride_estimate driver_location pickup"),
    ("files", "mcp", "directory file_metadata archive file_permission symlink file_watch"),
    ("git", "mcp", "commit branch diff stash tag remote merge_conflict"),
    ("github", "mcp", "issue pull_request repository release workflow_run review_comment gist"),
    ("database", "mcp", "table query_plan row index migration database_backup"),
    ("browser", "mcp", "tab cookie screenshot form_field network_request bookmark"),
    ("notebook", "mcp", "cell kernel notebook_output variable"),
    ("docker", "mcp", "container image volume container_log network"),
    ("kubernetes", "mcp", "pod deployment service namespace config_map node_pool"),
    ("monitoring", "dot", "alert metric dashboard log_stream incident trace"),
    ("cloud", "dot", "bucket virtual_machine function load_balancer access_key dns_record"),
    ("calendar", "mcp", "event calendar attendee free_slot meeting_room reminder"),
    ("mail", "mcp", "email draft mail_thread label attachment mail_filter"),
    ("chat", "mcp", "channel chat_message reaction chat_thread user_group huddle"),
    ("documents", "mcp", "document paragraph comment template revision"),
    ("sheets", "mcp", "spreadsheet cell_range chart pivot_table formula"),
    ("tasks", "plain", "todo_item task_list milestone sprint time_entry"),
    ("maps", "plain", "route place_details geocode traffic_report elevation"),
    ("weather", "plain", "weather_forecast weather_alert air_quality tide_table"),
    ("stocks", "plain", "stock_quote portfolio_position dividend earnings_report option_chain"),
    ("bank", "plain", "bank_account bank_transfer standing_order statement exchange_rate"),
    ("hr", "camel", "employee leave_request payslip job_opening applicant"),
    ("clinic", "camel", "patient appointment prescription lab_result referral"),
    ("legal", "camel", "contract clause signature_request court_case"),
    ("school", "camel", "course student grade assignment enrollment"),
    ("music", "plain", "song playlist artist album podcast_episode"),
    ("video", "plain", "video caption video_channel livestream"),
    ("images", "plain", "image_generation image_crop background_removal image_caption"),
    ("language", "plain", "translation summary grammar_check glossary_term speech_transcript"),
    ("home", "camel", "light thermostat door_lock camera scene"),
    ("ads", "dot", "campaign ad_group keyword audience conversion"),
    ("inventory", "dot", "warehouse stock_level purchase_order supplier shipment"),
    ("events", "plain", "concert_ticket venue seat_map event_organizer"),
    ("food", "plain", "restaurant menu_item table_booking delivery_order recipe"),
    ("realty", "plain", "property_listing viewing mortgage_quote neighborhood"),
    ("news", "plain", "news_article headline topic_feed source"),
    ("sports", "plain", "match_score league_table player_stats fixture"),
    ("security", "dot", "vulnerability secret_scan firewall_rule audit_log certificate"),
    ("social", "plain", "post follower hashtag profile direct_message"),
)
_VERBS: tuple[tuple[str, str], ...] = (
    ("get", "Get the details of a {noun} by its id."),
    ("list", "List every {noun} that matches the given filters."),
    ("search", "Search for a {noun} by words, with filters."),
    ("create", "Create a new {noun} with the given values."),
    ("update", "Update an existing {noun}."),
    ("delete", "Delete a {noun} for good."),
    ("cancel", "Cancel a {noun} and notify everybody who takes part."),
    ("export", "Export a {noun} to a file in the chosen format."),
)
_OTHERS: tuple[Definition, ...] = (
    ("get_current_time", "Get the current time in a time zone.", {"timezone": "The time zone."}),
    ("sleep", "Wait for a number of seconds.", {"seconds": "How long to wait."}),
    ("convert_units", "Convert a value from one unit to another.", {"value": "x", "unit": "y"}),
    ("convert_currency", "Convert an amount between currencies.", {"amount": "x", "to": "y"}),
    ("random_number", "Draw a random number.", {"low": "The least.", "high": "The most."}),
    ("run_sql", "Run a SQL statement against the warehouse.", {"sql": "The statement."}),
    ("run_javascript", "Run JavaScript code in a sandbox.", {"code": "The code to run."}),
    ("run_tests", "Run the tests of a project.", {"path": "Where the tests are."}),
    ("http_request", "Send an HTTP request to a URL.", {"url": "The URL.", "method": "x"}),
    ("fetch_url", "Fetch a URL and return its content as text.", {"url": "The URL to fetch."}),
    ("save_note", "Save a note for later.", {"text": "What to save."}),
    ("ask_user", "Ask the user a question.", {"question": "The question to ask."}),
    ("list_directory", "List the entries of a directory.", {"path": "The directory."}),
    ("copy_file", "Copy a file to another path.", {"source": "From.", "target": "To."}),
    ("lint_code", "Check code for style errors.", {"path": "The file to check."}),
    ("solve_equation", "Solve an equation for a variable.", {"equation": "x", "variable": "y"}),
    ("plot_chart", "Plot a chart from data.", {"data": "The data.", "kind": "The kind of chart."}),
    ("wikipedia_lookup", "Look up an article of Wikipedia.", {"title": "The title."}),
    ("send_sms", "Send a text message to a phone number.", {"number": "x", "text": "y"}),
    ("schedule_callback", "Schedule a call back to the customer.", {"phone": "x", "time": "y"}),
    ("verify_identity", "Verify the identity of a user by a code.", {"user_id": "x", "code": "y"}),
    ("send_gift_card", "Send a gift card to a customer.", {"customer_id": "x", "amount": "y"}),
    ("get_user_profile", "Get the profile of a user.", {"user_id": "The id of the user."}),
    ("update_user_profile", "Update the profile of a user.", {"user_id": "x", "profile": "y"}),
    ("search_hotels", "Search hotels in a city for given dates.", {"city": "x", "date": "y"}),
    ("search_trains", "Search trains between two cities on a date.", _TRIP),
    ("book_hotel", "Book a hotel room for a guest.", {"hotel_id": "x", "date": "y", "guests": "z"}),
    ("track_baggage", "Track a piece of baggage by its tag.", {"tag": "The tag number."}),
)
_PARAMETERS: tuple[tuple[str, str], ...] = (
    ("limit", "The most entries to return. The default is 50 and the most is 200."),
    ("cursor", "Where to continue, from the answer of an earlier call."),
    ("fields", "The fields to return. Without it, all fields are returned."),
    ("sort_by", "The field to sort by; a minus sign before it reverses the order."),
    ("created_after", "Only entries that were created after this time, in ISO 8601."),
    ("owner", "The id of the owner. Without it, entries of all owners are meant."),
    ("status", "Only entries with this status: open, closed, archived or all."),
    ("dry_run", "If true, nothing is changed and the answer says what would be."),
    ("reason", "Why this is done. It is written to the audit log."),
    ("notify", "Whether people who follow the entry get a message."),
    ("tags", "Tags to filter by. An entry must have all of them."),
    ("language", "The language of texts in the answer, as a code of two letters."),
)
_SENTENCES = (
    "The answer is a JSON object with the result, or with an error and a hint how to fix it.",
    "If something is not found, the answer says so and nothing is changed.",
    "Calls are limited to sixty in a minute; wait before you try again if the limit is reached.",
    "Use it only when the information is not already known from an earlier answer.",
    "Values that are not given keep their defaults, which are described with each parameter.",
    "Times are in UTC unless a zone is given, and amounts are in the currency of the account.",
    "Do not call it twice with the same arguments, since the answer will be the same.",
    "Check the arguments with care before calling, because they are validated strictly.",
    "Large answers are cut, and a cursor is returned with which the next part can be read.",
    "The caller needs the right to do this; without it, the answer is an error with code 403.",
    "Prefer it over other ways to reach the same result, since it is faster and is logged.",
    "Every call is recorded with its time, and the record can be read by administrators.",
    "Ids are the ones that earlier answers contain; do not make up an id or guess a part of it.",
    "Texts may have up to two thousand characters, and longer ones are refused with an error.",
    "An answer that takes more than thirty seconds ends with a timeout and can be asked for again.",
    "The order of entries is the same in each call as long as nothing was changed in between.",
    "Names are compared without regard to case, and blanks at their ends are removed first.",
    "If several entries match, all of them are returned and the best one comes first.",
)


@cache
def _make(name: str, about: str, parameters: tuple[tuple[str, str], ...]) -> Tool:
    rng = random.Random(name)
    count = gate_counter(None).count_tools
    schema = {
        "type": "object",
        "properties": {
            key: {"type": "string", "description": text if len(text) > 1 else f"The {key}."}
            for key, text in parameters
        },
        "required": [key for key, _ in parameters],
    }
    description = about
    tool = Tool(name, description, json.dumps(schema))
    for sentence in rng.sample(_SENTENCES, len(_SENTENCES)):
        longer = Tool(name, f"{tool.description} {sentence}", tool.schema)
        if count((longer,)) > TOKENS + 10:
            break
        tool = longer
    return tool


def make_definition(definition: Definition) -> Tool:
    """A definition of about 300 tokens, if what it says leaves room for more sentences."""
    name, about, parameters = definition
    return _make(name, about, tuple(parameters.items()))


@cache
def make_distractors() -> tuple[Tool, ...]:
    """All tools of the made-up services."""
    made = {definition[0]: make_definition(definition) for definition in _OTHERS}
    for service, style, nouns in _SERVICES:
        rng = random.Random(service)
        for noun in nouns.split():
            for verb, about in rng.sample(_VERBS, 3):
                name = _name(service, style, f"{verb}_{noun}")
                words = noun.replace("_", " ")
                parameters = {} if verb in ("list", "search") else {f"{noun}_id": "x"}
                if verb == "search":
                    parameters["query"] = "Words to search for."
                parameters |= dict(rng.sample(_PARAMETERS, 4))
                made[name] = make_definition((name, about.format(noun=words), parameters))
    return tuple(made.values())


def _name(service: str, style: str, words: str) -> str:
    match style:
        case "mcp":
            return f"mcp__{service}__{words}"
        case "dot":
            return f"{service}-{words}"
        case "camel":
            first, *others = words.split("_")
            return first + "".join(map(str.title, others))
    return words
