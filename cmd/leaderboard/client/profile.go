package client

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	pb "github.com/open-leaderboard/leaderboard/api/leaderboardpb"
	"github.com/open-leaderboard/leaderboard/api/restjson"
	"github.com/open-leaderboard/leaderboard/internal/cli"
)

func profileCommand(app *cli.App) *cobra.Command {
	return cli.Parent("profile", "Show, set and delete the profile of a user", `  leaderboard profile get ada
  leaderboard profile set ada --name "Ada 🚀" --country GBR
  leaderboard profile delete ada --reason "ticket 4711"`, profileGetCommand(app), profileSetCommand(app), profileDeleteCommand(app))
}

func profileGetCommand(app *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "get USER", Short: "Show the profile of a user", Args: cli.Exactly("USER"),
		Example: "  leaderboard profile get ada",
	}
	return DataCommand(app, cmd, func(ctx context.Context, c *Client, args []string) error {
		res, err := c.Scores.GetProfile(ctx, &pb.GetProfileRequest{UserId: args[0]})
		if err != nil {
			return err
		}
		return c.printProfile(res.GetProfile())
	})
}

func (c *Client) printProfile(p *pb.Profile) error {
	return c.print(p, func() {
		c.Printf("user:       %s\nname:       %s\navatar:     %s\ncountry:    %s\n", p.GetUserId(), p.GetDisplayName(), p.GetAvatarUrl(), p.GetCountry())
		if p.GetAttributes() != nil {
			if text, err := restjson.Append(nil, p.GetAttributes()); err == nil {
				c.Printf("attributes: %s\n", string(text))
			}
		}
		c.Printf("updated:    %s\n", formatTime(p.GetUpdatedAt()))
	})
}

func profileSetCommand(app *cli.App) *cobra.Command {
	var name, avatar, country, attributes, reason string
	cmd := &cobra.Command{
		Use: "set USER", Short: "Set parts of the profile of a user", Args: cli.Exactly("USER"),
		Long: `Set the given parts of the profile of a user, and keep the other parts. An empty value
removes a part.`,
		Example: `  leaderboard profile set ada --name "Ada 🚀" --country GBR
  leaderboard profile set kettle-7 --name "Kettle 7" --attributes '{"price":"29.90"}'
  leaderboard profile set ada --avatar ""`,
	}
	f := cmd.Flags()
	f.StringVar(&name, "name", "", "`name` for display")
	f.StringVar(&avatar, "avatar", "", "https `URL` of a picture")
	f.StringVar(&country, "country", "", "`code` of a country (ISO 3166-1 alpha-3), such as GBR")
	f.StringVar(&attributes, "attributes", "", "`JSON` object; it replaces all attributes")
	f.StringVar(&reason, "reason", "", "`reason` for the audit log")
	return DataCommand(app, cmd, func(ctx context.Context, c *Client, args []string) error {
		p := &pb.Profile{}
		res, err := c.Scores.GetProfile(ctx, &pb.GetProfileRequest{UserId: args[0]})
		if err != nil && status.Code(err) != codes.NotFound {
			return err
		}
		if err == nil {
			p = res.GetProfile()
			p.Revision, p.UpdatedAt = nil, nil
		}
		changed := false
		for flag, part := range map[string]struct {
			field **string
			value *string
		}{"name": {&p.DisplayName, &name}, "avatar": {&p.AvatarUrl, &avatar}, "country": {&p.Country, &country}} {
			if f.Changed(flag) {
				*part.field, changed = part.value, true
			}
		}
		if f.Changed("attributes") {
			p.Attributes, changed = &structpb.Struct{}, true
			if err := p.Attributes.UnmarshalJSON([]byte(attributes)); attributes != "" && err != nil {
				return cli.Usagef("--attributes is not a JSON object: %w", err)
			}
		}
		if !changed {
			return cli.Usagef("nothing to set; use --name, --avatar, --country or --attributes")
		}
		put, err := c.Scores.PutProfile(ctx, &pb.PutProfileRequest{UserId: args[0], Profile: p, Reason: reason})
		if err != nil {
			return err
		}
		return c.printProfile(put.GetProfile())
	})
}

func profileDeleteCommand(app *cli.App) *cobra.Command {
	var reason string
	var yes bool
	cmd := &cobra.Command{
		Use: "delete USER", Short: "Delete the profile of a user", Args: cli.Exactly("USER"),
		Example: `  leaderboard profile delete ada --reason "ticket 4711"`,
	}
	cmd.Flags().StringVar(&reason, "reason", "", "`reason` for the audit log")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask for confirmation")
	return DataCommand(app, cmd, func(ctx context.Context, c *Client, args []string) error {
		if err := app.Confirm(yes, fmt.Sprintf("Delete the profile of user %s?", args[0]), args[0]); err != nil {
			return err
		}
		res, err := c.Scores.DeleteProfile(ctx, &pb.DeleteProfileRequest{UserId: args[0], Reason: reason})
		if err != nil {
			return err
		}
		return c.print(res, func() { c.Printf("the profile of %s is deleted\n", args[0]) })
	})
}
